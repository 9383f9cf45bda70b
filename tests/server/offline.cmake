quire_test(offline_test offline_test.cc DEPS quire_offline_batch LABELS fast)
# The options of the executable fit together: CLI11 throws when two have one name.
add_test(NAME quire_offline_help COMMAND quire_offline --help)
set_tests_properties(quire_offline_help PROPERTIES LABELS fast TIMEOUT 120)
add_dependencies(quire_fast_tests quire_offline)
