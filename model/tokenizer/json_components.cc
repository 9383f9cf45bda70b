#include "model/tokenizer/json_components.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/json_fields.h"

namespace quire {
namespace {

using nlohmann::json;

absl::Status NotBuilt(const std::string& where, const std::string& type) {
  return absl::UnimplementedError(absl::StrCat(where, " of type ", Printable(type), " is not supported"));
}

// `make(part, where)` for each element of the array `key`.
template <typename Make>
absl::Status ForEachPart(const json& spec, const std::string& where, const char* key, Make make) {
  QUIRE_ASSIGN_OR_RETURN(const json* parts, json_fields::Array(spec, where, key));
  for (size_t i = 0; i < parts->size(); ++i) {
    QUIRE_RETURN_IF_ERROR(make((*parts)[i], absl::StrCat(where, ".", key, "[", i, "]")));
  }
  return absl::OkStatus();
}

std::string QuoteForRegex(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSplitFrom(const json& spec, const std::string& where) {
  using Behavior = SplitPreTokenizer::Behavior;
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  QUIRE_ASSIGN_OR_RETURN(const json* pattern, json_fields::Object(spec, where, "pattern"));
  const std::string pattern_where = absl::StrCat(where, ".pattern");
  const bool is_regex = json_fields::Find(*pattern, "Regex") != nullptr;
  QUIRE_ASSIGN_OR_RETURN(std::string text, json_fields::String(*pattern, pattern_where, is_regex ? "Regex" : "String"));
  QUIRE_ASSIGN_OR_RETURN(const bool invert, json_fields::Bool(spec, where, "invert", false));
  QUIRE_ASSIGN_OR_RETURN(const std::string behavior, json_fields::String(spec, where, "behavior"));
  for (const auto& [name, value] : kBehaviors) {
    if (name != behavior) continue;
    auto split = MakeSplit(is_regex ? text : QuoteForRegex(text), value, invert);
    if (split.ok()) return split;
    return absl::Status(split.status().code(), absl::StrCat(pattern_where, ": ", split.status().message()));
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ".behavior is '", Printable(behavior),
                                                 "', which must be Removed, Isolated, MergedWithPrevious, "
                                                 "MergedWithNext or Contiguous"));
}

// Ids that one entry of a template's special_tokens stands for.
absl::Status AppendTemplateIds(const json& spec, const std::string& where, const std::string& name,
                               std::vector<int32_t>* ids) {
  QUIRE_ASSIGN_OR_RETURN(const json* tokens, json_fields::Object(spec, where, "special_tokens"));
  const std::string tokens_where = absl::StrCat(where, ".special_tokens");
  QUIRE_ASSIGN_OR_RETURN(const json* entry, json_fields::Object(*tokens, tokens_where, name.c_str()));
  const std::string entry_where = absl::StrCat(tokens_where, ".", Printable(name));
  QUIRE_ASSIGN_OR_RETURN(const json* values, json_fields::Array(*entry, entry_where, "ids"));
  for (const json& value : *values) {
    if (!value.is_number_integer()) {
      return absl::InvalidArgumentError(absl::StrCat(entry_where, ".ids must hold integers"));
    }
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() >= Vocabulary::kMaxTokens;
    const int64_t id = huge ? Vocabulary::kMaxTokens : value.get<int64_t>();
    QUIRE_RETURN_IF_ERROR(Vocabulary::CheckId(id, name));
    ids->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ApplyTemplate(const json& spec, const std::string& where, std::vector<int32_t>* prefix,
                           std::vector<int32_t>* suffix) {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  QUIRE_RETURN_IF_ERROR(
      ForEachPart(spec, where, "single", [&](const json& part, const std::string& at) -> absl::Status {
        if (const json* sequence = json_fields::Find(part, "Sequence"); sequence != nullptr) {
          QUIRE_ASSIGN_OR_RETURN(const std::string id,
                                 json_fields::String(*sequence, absl::StrCat(at, ".Sequence"), "id"));
          if (id != "A")
            return absl::InvalidArgumentError(
                absl::StrCat(at, ".Sequence.id is '", Printable(id), "', which must be A"));
          ++texts;
          return absl::OkStatus();
        }
        QUIRE_ASSIGN_OR_RETURN(const json* token, json_fields::Object(part, at, "SpecialToken"));
        QUIRE_ASSIGN_OR_RETURN(const std::string id,
                               json_fields::String(*token, absl::StrCat(at, ".SpecialToken"), "id"));
        return AppendTemplateIds(spec, where, id, texts == 0 ? &before : &after);
      }));
  if (!prefix->empty() || !suffix->empty()) {
    return absl::UnimplementedError(absl::StrCat(where, " is a second template: not supported"));
  }
  if (texts != 1) {
    return absl::UnimplementedError(absl::StrCat(where, ".single holds the text ", texts, " times, not once"));
  }
  *prefix = std::move(before);
  *suffix = std::move(after);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "NFC") return std::make_unique<NfcNormalizer>();
  if (type != "Sequence") return NotBuilt(where, type);
  std::vector<std::unique_ptr<Normalizer>> parts;
  QUIRE_RETURN_IF_ERROR(
      ForEachPart(spec, where, "normalizers", [&](const json& part, const std::string& at) -> absl::Status {
        QUIRE_ASSIGN_OR_RETURN(auto made, MakeNormalizer(part, at));
        parts.push_back(std::move(made));
        return absl::OkStatus();
      }));
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "Split") return MakeSplitFrom(spec, where);
  if (type == "ByteLevel") {
    QUIRE_ASSIGN_OR_RETURN(const bool add_prefix_space, json_fields::Bool(spec, where, "add_prefix_space", true));
    QUIRE_ASSIGN_OR_RETURN(const bool use_regex, json_fields::Bool(spec, where, "use_regex", true));
    return ByteLevelPreTokenizer::Create(add_prefix_space, use_regex);
  }
  if (type == "Digits") {
    QUIRE_ASSIGN_OR_RETURN(const bool individual, json_fields::Bool(spec, where, "individual_digits", false));
    return MakeDigits(individual);
  }
  if (type != "Sequence") return NotBuilt(where, type);
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  QUIRE_RETURN_IF_ERROR(
      ForEachPart(spec, where, "pretokenizers", [&](const json& part, const std::string& at) -> absl::Status {
        QUIRE_ASSIGN_OR_RETURN(auto made, MakePreTokenizer(part, at));
        parts.push_back(std::move(made));
        return absl::OkStatus();
      }));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

absl::Status ApplyPostProcessor(const json& spec, const std::string& where, std::vector<int32_t>* prefix,
                                std::vector<int32_t>* suffix) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "ByteLevel") return absl::OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") return ApplyTemplate(spec, where, prefix, suffix);
  if (type != "Sequence") return NotBuilt(where, type);
  return ForEachPart(spec, where, "processors", [&](const json& part, const std::string& at) {
    return ApplyPostProcessor(part, at, prefix, suffix);
  });
}

absl::Status CheckDecoder(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "ByteLevel") return absl::OkStatus();
  if (type != "Sequence") return NotBuilt(where, type);
  int parts = 0;
  QUIRE_RETURN_IF_ERROR(ForEachPart(spec, where, "decoders", [&](const json& part, const std::string& at) {
    ++parts;
    return CheckDecoder(part, at);
  }));
  if (parts == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(where, " is a sequence of ", parts, " decoders, not of one"));
}

}  // namespace quire
