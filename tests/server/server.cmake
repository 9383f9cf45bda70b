# frontend and config: no gRPC.
quire_test(server_frontend_test api_keys_test.cc chat_format_test.cc constraint_cache_test.cc frontend_chat_test.cc frontend_test.cc json_text_test.cc literal_text_test.cc pending_output_test.cc sampling_rules_check_test.cc stop_checker_test.cc stop_faults_test.cc token_memory_test.cc tool_choice_test.cc validator_test.cc
           DEPS quire_frontend quire_testing LABELS fast)
quire_test(server_http_test http_chat_test.cc http_completions_test.cc http_samplers_test.cc http_server_test.cc
           http_speculation_test.cc http_structured_test.cc http_traffic_test.cc DEPS quire_http quire_engine quire_testing LABELS fast)
quire_test(server_metrics_test metrics_test.cc DEPS quire_metrics quire_testing LABELS fast)
quire_test(server_config_test config_test.cc DEPS quire_config LABELS fast ONE_THREAD)
if(QUIRE_WITH_GRPC)
  quire_test(server_grpc_test grpc_admin_test.cc grpc_cancel_test.cc grpc_chat_test.cc grpc_connection_test.cc grpc_convert_test.cc grpc_events_test.cc grpc_load_test.cc grpc_status_test.cc grpc_stream_test.cc
             DEPS quire_grpc quire_testing LABELS grpc
             HEADERS <gtest/gtest.h> <grpcpp/grpcpp.h> <quire/v1/generation.grpc.pb.h>)
endif()
