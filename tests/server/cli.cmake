if(QUIRE_WITH_GRPC)
  quire_test(cli_base_test cli_dataset_test.cc cli_metrics_test.cc DEPS quire_cli_base LABELS fast)
  quire_test(cli_test cli_app_test.cc cli_chat_test.cc cli_command_test.cc cli_inspect_test.cc cli_render_test.cc cli_tokenizer_test.cc
             DEPS quire_cli quire_testing LABELS grpc)
endif()
