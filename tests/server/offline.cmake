quire_test(offline_test offline_test.cc DEPS quire_offline_batch LABELS fast)
