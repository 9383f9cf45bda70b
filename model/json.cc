#include "model/json.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/mapped_file.h"
#include "model/printable.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

using nlohmann::json;

// Builds a value from the parser's events, so that depth and repeated keys are seen before anything is lost.
class Builder : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary value"); }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    const auto [entry, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    slot_ = &entry->second;
    return is_new || Fail(absl::StrFormat("duplicate key '%s'", Printable(entry->first)));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The tail of the message shows bytes of the file; they may be cut inside a character.
    std::string text = error.what();
    text = text.substr(0, text.find("; last read"));
    return Fail(absl::StrFormat("%s (byte %d)", text.substr(text.find("] ") + 2), position));
  }

  json root;
  std::string problem;

 private:
  static constexpr size_t kMaxDepth = 64;
  static constexpr size_t kMaxValues = 2'000'000;  // twenty times the largest index; one takes up to 200 bytes

  bool Fail(std::string what) {
    problem = std::move(what);
    return false;
  }

  json* Place(json value) {
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }

  bool Count() { return ++count_ <= kMaxValues || Fail(absl::StrFormat("more than %d values", kMaxValues)); }

  bool Add(json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }

  bool Open(json container) {
    if (!Count()) return false;
    if (open_.size() == kMaxDepth) return Fail(absl::StrFormat("nested deeper than %d levels", kMaxDepth));
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::vector<json*> open_;  // the containers around the current position; only the last one grows
  size_t count_ = 0;         // of values so far
  json* slot_ = nullptr;     // value of the last key of the innermost object
};

}  // namespace

absl::StatusOr<json> ParseJson(std::string_view text, const std::string& where) {
  if (!utf8::IsValid(text)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the JSON text is not valid UTF-8", where));
  }
  // The parser below takes a NUL for the end.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: not acceptable as JSON: NUL at byte %d", where, nul));
  }
  Builder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: not acceptable as JSON: %s", where, builder.problem));
  }
  return std::move(builder.root);
}

absl::StatusOr<json> ReadJsonObject(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  QUIRE_ASSIGN_OR_RETURN(json value, ParseJson({text, file.bytes().size()}, path));
  if (!value.is_object()) return absl::InvalidArgumentError(absl::StrFormat("%s: not a JSON object", path));
  return value;
}

const json* JsonFields::Find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::IsNull(const char* key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

absl::Status JsonFields::Error(const char* key, std::string_view what) const {
  const json* value = Find(key);
  if (value == nullptr) return absl::InvalidArgumentError(absl::StrFormat("%s: %s is missing or null", where_, key));
  const std::string shown = value->is_structured() ? std::string(value->type_name()) : value->dump();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s is %s, %s", where_, key, Printable(shown), what));
}

absl::StatusOr<int64_t> JsonFields::Int(const char* key, int64_t min, int64_t max) const {
  const std::string allowed = absl::StrFormat("allowed are integers from %d to %d", min, max);
  const json* value = Find(key);
  if (value == nullptr || !value->is_number_integer()) return Error(key, allowed);
  // Unsigned values beyond int64 would wrap.
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return Error(key, allowed);
  const auto number = value->get<int64_t>();
  if (number < min || number > max) return Error(key, allowed);
  return number;
}

absl::StatusOr<double> JsonFields::Float(const char* key, double min, double max) const {
  const json* value = Find(key);
  const auto in_range = [&](double number) { return number >= min && number <= max; };
  if (value == nullptr || !value->is_number() || !in_range(value->get<double>())) {
    return Error(key, absl::StrFormat("allowed are numbers from %g to %g", min, max));
  }
  return value->get<double>();
}

absl::StatusOr<bool> JsonFields::Bool(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr || !value->is_boolean()) return Error(key, "allowed are true and false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFields::String(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Error(key, "a string is needed");
  return value->get<std::string>();
}

absl::StatusOr<int64_t> JsonFields::IntOr(const char* key, int64_t absent, int64_t min, int64_t max) const {
  if (!Has(key)) return absent;
  return Int(key, min, max);
}

absl::StatusOr<double> JsonFields::FloatOr(const char* key, double absent, double min, double max) const {
  if (!Has(key)) return absent;
  return Float(key, min, max);
}

absl::StatusOr<bool> JsonFields::BoolOr(const char* key, bool absent) const {
  if (!Has(key)) return absent;
  return Bool(key);
}

absl::StatusOr<std::optional<double>> JsonFields::OptionalFloat(const char* key, double min, double max) const {
  if (!Has(key)) return std::optional<double>();
  QUIRE_ASSIGN_OR_RETURN(const double value, Float(key, min, max));
  return std::optional<double>(value);
}

}  // namespace quire
