# quire_offline: the engine without a network.
quire_library(quire_offline_batch offline/offline_batch.cc offline/offline_request.cc offline/offline_result.cc COLD
              DEPS quire_frontend nlohmann_json::nlohmann_json)
set_target_properties(quire_offline_batch PROPERTIES UNITY_BUILD OFF)  # its files have Json types of their own
quire_executable(quire_offline offline_main.cc COLD DEPS quire_offline_batch quire_config quire_engine quire_tokenizer)
