#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status_macros.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_types.h"
#include "model/model_tensors.h"
#include "model/safetensors.h"
#include "server/cli/commands.h"
#include "server/cli/format.h"

namespace quire::cli {
namespace {

struct TensorGroup {
  int64_t count = 0;
  int64_t bytes = 0;
};
using TensorGroups = std::map<std::string, TensorGroup>;  // by type

std::string GgufTypeName(uint32_t type) {
  const GgufTypeInfo* info = FindGgufType(type);
  return info != nullptr ? std::string(info->name) : absl::StrCat("type ", type);
}

absl::StatusOr<TensorGroups> CountGgufTensors(const std::string& path, const ModelConfig& config) {
  QUIRE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  QUIRE_RETURN_IF_ERROR(CheckTensors(*file, config));
  TensorGroups groups;
  for (const GgufFile::Tensor& tensor : file->tensors()) {
    TensorGroup& group = groups[GgufTypeName(tensor.type)];
    ++group.count;
    group.bytes += tensor.bytes;
  }
  return groups;
}

// Of a model that has what its configuration promises.
absl::StatusOr<TensorGroups> CountTensors(const std::string& path, const ModelConfig& config) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return CountGgufTensors(path, config);
  QUIRE_ASSIGN_OR_RETURN(const auto directory, SafetensorsDirectory::Open(path));
  QUIRE_RETURN_IF_ERROR(CheckTensors(*directory, config));
  TensorGroups groups;
  for (const auto& [name, tensor] : directory->tensors()) {
    TensorGroup& group = groups[std::string(tensor->dtype)];
    ++group.count;
    group.bytes += tensor->bytes;
  }
  return groups;
}

// What is known about a model, and what follows for the KV cache.
struct Inspection {
  ModelConfig config;
  TensorGroups tensors;
  int64_t weight_bytes = 0;
  std::string kv_dtype;
  int64_t kv_bytes_per_token = 0;
  int64_t context = 0;                // tokens of one sequence
  int64_t kv_bytes_per_sequence = 0;  // of so many tokens: on layers with a window, what the window holds
};

absl::StatusOr<Inspection> Inspect(const InspectOptions& options) {
  Inspection result;
  QUIRE_ASSIGN_OR_RETURN(result.config, LoadModelConfig(options.model));
  QUIRE_ASSIGN_OR_RETURN(result.tensors, CountTensors(options.model, result.config));
  for (const auto& [type, group] : result.tensors) result.weight_bytes += group.bytes;
  const ModelConfig& config = result.config;
  const DType on_cpu = config.dtype == DType::kF32 ? DType::kF32 : DType::kF16;
  const DType kv_dtype = FindKvDType(options.kv_dtype).value_or(on_cpu);
  result.kv_dtype = std::string(Name(kv_dtype));
  result.kv_bytes_per_token =
      2 * int64_t{config.num_layers} * config.num_kv_heads * KvRowBytes(kv_dtype, config.head_dim);
  result.context = options.context.value_or(config.max_position_embeddings);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t window = config.window(layer);
    const int64_t tokens = window > 0 ? std::min(window, result.context) : result.context;
    result.kv_bytes_per_sequence += tokens * result.kv_bytes_per_token / config.num_layers;
  }
  return result;
}

Json ToJson(const InspectOptions& options, const Inspection& inspection) {
  const ModelConfig& config = inspection.config;
  Json tensors = Json::array();
  for (const auto& [type, group] : inspection.tensors) {
    tensors.push_back({{"type", type}, {"count", group.count}, {"bytes", group.bytes}});
  }
  Json json = {{"model", options.model},
               {"architecture", config.architecture},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"layers", config.num_layers},
               {"heads", config.num_heads},
               {"kv_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"max_position_embeddings", config.max_position_embeddings},
               {"tensors", std::move(tensors)},
               {"weight_bytes", inspection.weight_bytes},
               {"kv_cache_dtype", inspection.kv_dtype},
               {"kv_bytes_per_token", inspection.kv_bytes_per_token},
               {"kv_bytes_per_sequence", inspection.kv_bytes_per_sequence},
               {"context", inspection.context}};
  if (!config.layer_windows.empty()) json["layer_windows"] = config.layer_windows;
  if (options.memory_bytes) {
    const int64_t tokens = *options.memory_bytes / inspection.kv_bytes_per_token;
    json["memory_bytes"] = *options.memory_bytes;
    json["tokens"] = tokens;
    json["sequences"] = *options.memory_bytes / inspection.kv_bytes_per_sequence;
  }
  return json;
}

std::string ToText(const InspectOptions& options, const Inspection& inspection) {
  const ModelConfig& config = inspection.config;
  std::string text = absl::StrFormat(
      "architecture  %s\n"
      "shape         %d layers, hidden %d, intermediate %d, %d heads, %d KV heads of %d, vocabulary %d\n"
      "context       %d tokens\n",
      config.architecture, config.num_layers, config.hidden_size, config.intermediate_size, config.num_heads,
      config.num_kv_heads, config.head_dim, config.vocab_size, config.max_position_embeddings);
  if (!config.layer_windows.empty()) {
    const auto has_window = [](int32_t window) { return window > 0; };
    const std::vector<int32_t>& windows = config.layer_windows;
    absl::StrAppendFormat(&text, "windows       %d of %d layers see %d tokens\n",
                          std::count_if(windows.begin(), windows.end(), has_window), config.num_layers,
                          *std::max_element(windows.begin(), windows.end()));
  }
  text += "tensors\n";
  for (const auto& [type, group] : inspection.tensors) {
    absl::StrAppendFormat(&text, "  %-8s %5d  %s\n", type, group.count, BytesText(static_cast<double>(group.bytes)));
  }
  absl::StrAppendFormat(&text,
                        "weights       %d bytes (%s)\n"
                        "KV cache      %d bytes a token (%s)\n",
                        inspection.weight_bytes, BytesText(static_cast<double>(inspection.weight_bytes)),
                        inspection.kv_bytes_per_token, inspection.kv_dtype);
  absl::StrAppendFormat(&text, "a sequence    %s for %d tokens\n",
                        BytesText(static_cast<double>(inspection.kv_bytes_per_sequence)), inspection.context);
  if (options.memory_bytes) {
    const int64_t tokens = *options.memory_bytes / inspection.kv_bytes_per_token;
    absl::StrAppendFormat(&text, "%s hold %d tokens: %d sequences of %d\n",
                          BytesText(static_cast<double>(*options.memory_bytes)), tokens,
                          *options.memory_bytes / inspection.kv_bytes_per_sequence, inspection.context);
  }
  return text;
}

}  // namespace

int RunInspect(const InspectOptions& options, Session& session) {
  const auto inspection = Inspect(options);
  if (!inspection.ok()) return ReportError(session, inspection.status().message(), kExitBadModel);
  session.out << (options.json ? JsonLine(ToJson(options, *inspection)) : ToText(options, *inspection)) << std::flush;
  return kExitOk;
}

}  // namespace quire::cli
