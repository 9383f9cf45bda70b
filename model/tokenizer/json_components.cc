#include "model/tokenizer/json_components.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/utf8.h"

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

absl::Status At(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// {"String": literal} or {"Regex": expression}.
absl::StatusOr<Pattern> MakePattern(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(const json* pattern, json_fields::Object(spec, where, "pattern"));
  const std::string pattern_where = absl::StrCat(where, ".pattern");
  const bool is_regex = json_fields::Find(*pattern, "Regex") != nullptr;
  QUIRE_ASSIGN_OR_RETURN(const std::string text,
                         json_fields::String(*pattern, pattern_where, is_regex ? "Regex" : "String"));
  auto made = is_regex ? Pattern::OfRegex(text) : Pattern::OfLiteral(text);
  if (!made.ok()) return At(pattern_where, made.status());
  return made;
}

absl::StatusOr<SplitBehavior> GetBehavior(const json& spec, const std::string& where, const char* if_absent) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  QUIRE_ASSIGN_OR_RETURN(const std::string behavior, json_fields::String(spec, where, "behavior", if_absent));
  for (const auto& [name, value] : kBehaviors) {
    if (name == behavior) return value;
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ".behavior is '", Printable(behavior),
                                                 "', which must be Removed, Isolated, MergedWithPrevious, "
                                                 "MergedWithNext or Contiguous"));
}

// A field that holds one character.
absl::StatusOr<std::string> GetCharacter(const json& spec, const std::string& where, const char* key,
                                         const char* if_absent = nullptr) {
  QUIRE_ASSIGN_OR_RETURN(std::string text, json_fields::String(spec, where, key, if_absent));
  if (!text.empty() && utf8::NextPart(text).size == text.size()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(where, ".", key, " is '", Printable(text), "', which must be one character"));
}

absl::StatusOr<MetaspaceOptions> GetMetaspace(const json& spec, const std::string& where) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.mark, GetCharacter(spec, where, "replacement"));
  QUIRE_ASSIGN_OR_RETURN(const std::string scheme, json_fields::String(spec, where, "prepend_scheme", "always"));
  QUIRE_ASSIGN_OR_RETURN(options.split, json_fields::Bool(spec, where, "split", true));
  QUIRE_ASSIGN_OR_RETURN(const bool add_prefix_space, json_fields::Bool(spec, where, "add_prefix_space", true));
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ".prepend_scheme is '", Printable(scheme), "', which must be always, never or first"));
  }
  options.prepend = scheme == "always" ? Prepend::kAlways : scheme == "first" ? Prepend::kFirst : Prepend::kNever;
  if (!add_prefix_space) options.prepend = Prepend::kNever;  // how older files say it
  return options;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSplitFrom(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, MakePattern(spec, where));
  QUIRE_ASSIGN_OR_RETURN(const bool invert, json_fields::Bool(spec, where, "invert", false));
  QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior, GetBehavior(spec, where, nullptr));
  return MakeSplit(std::move(pattern), behavior, invert);
}

// The normalizers without parts; null if `type` is none of them.
absl::StatusOr<std::unique_ptr<Normalizer>> MakeSimpleNormalizer(const std::string& type, const json& spec,
                                                                 const std::string& where) {
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (name == type) return std::make_unique<UnicodeNormalizer>(form);
  }
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Prepend") {
    QUIRE_ASSIGN_OR_RETURN(std::string content, json_fields::String(spec, where, "prepend"));
    return std::make_unique<PrependNormalizer>(std::move(content));
  }
  if (type == "Replace") {
    QUIRE_ASSIGN_OR_RETURN(Pattern pattern, MakePattern(spec, where));
    QUIRE_ASSIGN_OR_RETURN(std::string content, json_fields::String(spec, where, "content"));
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    QUIRE_ASSIGN_OR_RETURN(const bool left, json_fields::Bool(spec, where, "strip_left", true));
    QUIRE_ASSIGN_OR_RETURN(const bool right, json_fields::Bool(spec, where, "strip_right", true));
    return std::make_unique<StripNormalizer>(left, right);
  }
  return nullptr;
}

// The pre-tokenizers without parts; null if `type` is none of them.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSimplePreTokenizer(const std::string& type, const json& spec,
                                                                     const std::string& where) {
  if (type == "Split") return MakeSplitFrom(spec, where);
  if (type == "ByteLevel") {
    QUIRE_ASSIGN_OR_RETURN(const bool add_prefix_space, json_fields::Bool(spec, where, "add_prefix_space", true));
    QUIRE_ASSIGN_OR_RETURN(const bool use_regex, json_fields::Bool(spec, where, "use_regex", true));
    return MakeByteLevel(add_prefix_space, use_regex);
  }
  if (type == "Digits") {
    QUIRE_ASSIGN_OR_RETURN(const bool individual, json_fields::Bool(spec, where, "individual_digits", false));
    return MakeDigits(individual);
  }
  if (type == "Metaspace") {
    QUIRE_ASSIGN_OR_RETURN(MetaspaceOptions options, GetMetaspace(spec, where));
    return MakeMetaspace(std::move(options));
  }
  if (type == "Punctuation") {
    QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior, GetBehavior(spec, where, "Isolated"));
    return MakePunctuation(behavior);
  }
  if (type == "Whitespace" || type == "WhitespaceSplit") return MakeWhitespace(/*words=*/type == "Whitespace");
  if (type == "CharDelimiterSplit") {
    QUIRE_ASSIGN_OR_RETURN(const std::string delimiter, GetCharacter(spec, where, "delimiter"));
    QUIRE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::OfLiteral(delimiter));
    return MakeSplit(std::move(pattern), SplitBehavior::kRemoved, /*invert=*/false);
  }
  return nullptr;
}

absl::Status AddDecoderStep(const json& spec, const std::string& where, TokenDecoder* decoder) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "ByteLevel") return decoder->AddByteLevel();
  if (type == "ByteFallback") return decoder->AddByteFallback();
  if (type == "Fuse") return decoder->AddFuse();
  if (type == "Metaspace") {
    QUIRE_ASSIGN_OR_RETURN(MetaspaceOptions options, GetMetaspace(spec, where));
    return decoder->AddMetaspace(std::move(options.mark), options.prepend != MetaspaceOptions::Prepend::kNever);
  }
  if (type == "Replace") {
    QUIRE_ASSIGN_OR_RETURN(Pattern pattern, MakePattern(spec, where));
    QUIRE_ASSIGN_OR_RETURN(std::string content, json_fields::String(spec, where, "content"));
    return decoder->AddReplace(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    QUIRE_ASSIGN_OR_RETURN(std::string character, GetCharacter(spec, where, "content"));
    QUIRE_ASSIGN_OR_RETURN(const int64_t start, json_fields::Int(spec, where, "start"));
    QUIRE_ASSIGN_OR_RETURN(const int64_t stop, json_fields::Int(spec, where, "stop"));
    if (start < 0 || stop < 0) return absl::InvalidArgumentError("start and stop must not be negative");
    return decoder->AddStrip(std::move(character), start, stop);
  }
  return absl::UnimplementedError(absl::StrCat("of type ", Printable(type), " is not supported"));
}

absl::Status AddDecoder(const json& spec, const std::string& where, TokenDecoder* decoder) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "Sequence") {
    return ForEachPart(spec, where, "decoders",
                       [&](const json& part, const std::string& at) { return AddDecoder(part, at, decoder); });
  }
  if (absl::Status status = AddDecoderStep(spec, where, decoder); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(where, " ", status.message()));
  }
  return absl::OkStatus();
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

absl::Status ApplyTemplate(const json& spec, const std::string& where, PostProcessing* post) {
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
  if (!post->prefix.empty() || !post->suffix.empty()) {
    return absl::UnimplementedError(absl::StrCat(where, " is a second template: not supported"));
  }
  if (texts != 1) {
    return absl::UnimplementedError(absl::StrCat(where, ".single holds the text ", texts, " times, not once"));
  }
  post->prefix = std::move(before);
  post->suffix = std::move(after);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const json& spec, const std::string& where) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  QUIRE_ASSIGN_OR_RETURN(auto simple, MakeSimpleNormalizer(type, spec, where));
  if (simple != nullptr) return simple;
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
  QUIRE_ASSIGN_OR_RETURN(auto simple, MakeSimplePreTokenizer(type, spec, where));
  if (simple != nullptr) return simple;
  if (type != "Sequence") return NotBuilt(where, type);
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  QUIRE_RETURN_IF_ERROR(
      ForEachPart(spec, where, "pretokenizers", [&](const json& part, const std::string& at) -> absl::Status {
        QUIRE_ASSIGN_OR_RETURN(auto made, MakePreTokenizer(part, at));
        parts.push_back(std::move(made));
        return absl::OkStatus();
      }));
  return MakeSequence(std::move(parts));
}

absl::Status ApplyPostProcessor(const json& spec, const std::string& where, PostProcessing* post) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(spec, where, "type"));
  if (type == "ByteLevel") {
    QUIRE_ASSIGN_OR_RETURN(const bool add_prefix_space, json_fields::Bool(spec, where, "add_prefix_space", true));
    QUIRE_ASSIGN_OR_RETURN(const bool trims, json_fields::Bool(spec, where, "trim_offsets", true));
    if (trims) post->trims.push_back({add_prefix_space});
    return absl::OkStatus();
  }
  if (type == "TemplateProcessing") return ApplyTemplate(spec, where, post);
  if (type != "Sequence") return NotBuilt(where, type);
  return ForEachPart(spec, where, "processors",
                     [&](const json& part, const std::string& at) { return ApplyPostProcessor(part, at, post); });
}

absl::StatusOr<TokenDecoder> MakeDecoder(const json& spec, const std::string& where) {
  TokenDecoder decoder;
  QUIRE_RETURN_IF_ERROR(AddDecoder(spec, where, &decoder));
  return decoder;
}

}  // namespace quire
