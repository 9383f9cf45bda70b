#include "model/chat/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"
#include "model/chat/budget.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"

namespace quire::jinja {
namespace {

constexpr int32_t kMaxValueDepth = 500;
constexpr size_t kIndexedFrom = 8;  // smaller dicts are searched one by one

int32_t DepthOf(const std::vector<Value>& items) {
  int32_t deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return DepthAround(deepest);
}

Value FromJsonAt(const nlohmann::ordered_json& json, int32_t level) {
  using Type = nlohmann::ordered_json::value_t;
  if (level > kMaxValueDepth) throw TemplateError(ErrorKind::kLimit, "the context nests deeper than 500 levels");
  switch (json.type()) {
    case Type::null:
    case Type::discarded:
      return Value::None();
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Integer(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::Integer(json.get<uint64_t>());
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return Value::String(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJsonAt(item, level + 1));
      return Value::List(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<DictObject>();
      for (const auto& [key, item] : json.items()) dict->Set(Value::String(key), FromJsonAt(item, level + 1));
      return Value::Dict(std::move(dict));
    }
    case Type::binary:
      break;
  }
  Fail("a JSON value of binary type has no meaning in a template");
}

}  // namespace

void Budget::ThrowSteps() const {
  throw TemplateError(ErrorKind::kLimit,
                      absl::StrFormat("the template needs more than %d steps (max_steps)", limits_.max_steps));
}
void Budget::ThrowDepth() const {
  throw TemplateError(ErrorKind::kLimit,
                      absl::StrFormat("the template nests deeper than %d evaluations (max_depth)", limits_.max_depth));
}
void Budget::ThrowBytes() const {
  throw TemplateError(
      ErrorKind::kLimit,
      absl::StrFormat("the template makes a text of more than %d bytes (max_output_bytes)", limits_.max_output_bytes));
}

int32_t DepthAround(int32_t deepest) {
  if (deepest >= kMaxValueDepth) {
    throw TemplateError(ErrorKind::kLimit,
                        absl::StrFormat("a value of the template nests deeper than %d levels", kMaxValueDepth));
  }
  return deepest + 1;
}

Value::Value() : kind_(Kind::kUndefined), rep_(std::monostate{}) {}

Value Value::String(std::string text, bool markup) {
  auto object = std::make_shared<StringObject>();
  for (const char byte : text) object->num_chars += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  object->text = std::move(text);
  object->markup = markup;
  return Of(Kind::kString, std::move(object));
}

Value Value::List(std::vector<Value> items) {
  auto object = std::make_shared<SequenceObject>();
  object->depth = DepthOf(items);
  object->items = std::move(items);
  return Of(Kind::kList, std::move(object));
}

Value Value::Tuple(std::vector<Value> items) {
  Value list = List(std::move(items));
  list.kind_ = Kind::kTuple;
  return list;
}

Value Value::Dict(std::shared_ptr<DictObject> dict) { return Of(Kind::kDict, std::move(dict)); }

Value Value::Undefined(std::string message, bool security) {
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  object->security = security;
  return Of(Kind::kUndefined, std::move(object));
}

Value Value::FromJson(const nlohmann::ordered_json& json) { return FromJsonAt(json, 1); }

const std::string& Value::text() const { return as<StringObject>().text; }
bool Value::markup() const { return as<StringObject>().markup; }
const std::vector<Value>& Value::items() const { return as<SequenceObject>().items; }
const DictObject& Value::dict() const { return as<DictObject>(); }

const UndefinedObject& Value::undefined() const {
  static const UndefinedObject* const nameless = [] {
    auto* object = new UndefinedObject();
    object->message = "the value is undefined";
    return object;
  }();
  return address() == nullptr ? *nameless : as<UndefinedObject>();
}

const Object* Value::address() const {
  const auto* object = std::get_if<std::shared_ptr<Object>>(&rep_);
  return object == nullptr ? nullptr : object->get();
}

std::string HashKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return Cat("s", key.text());
    case Kind::kBool:
    case Kind::kInt: {
      const Int value = key.integer();
      return Cat("i", static_cast<int64_t>(value >> 64), ",", static_cast<uint64_t>(value));
    }
    case Kind::kFloat: {
      const double value = key.floating();
      if (std::abs(value) < 1e38 && std::trunc(value) == value) return HashKey(Value::Integer(static_cast<Int>(value)));
      return Cat("f", std::bit_cast<uint64_t>(value));
    }
    case Kind::kNone:
      return "n";
    case Kind::kUndefined:
      return "u";
    case Kind::kTuple: {
      std::string text = "t";
      for (const Value& item : key.items()) {
        const std::string part = HashKey(item);
        CatTo(&text, part.size(), ":", part);
        if (text.size() > (1u << 20)) throw TemplateError(ErrorKind::kLimit, "a tuple used as a key is beyond 1 MiB");
      }
      return text;
    }
    case Kind::kList:
    case Kind::kDict:
      Fail(Cat("TypeError: unhashable type: '", TypeName(key), "'"));
    default:
      return Cat("o", reinterpret_cast<uintptr_t>(key.address()));
  }
}

const Value* DictObject::Find(const Value& key) const {
  if (key.is(Kind::kString)) return Find(key.text());
  const std::string wanted = HashKey(key);
  if (!index_.empty()) {
    const auto found = index_.find(wanted);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (!name.is(Kind::kString) && HashKey(name) == wanted) return &value;
  }
  return nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(Cat("s", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is(Kind::kString) && name.text() == key) return &value;
  }
  return nullptr;
}

void DictObject::Set(const Value& key, Value value) {
  depth = std::max({depth, DepthAround(value.depth()), DepthAround(key.depth())});
  if (const Value* found = Find(key); found != nullptr) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexedFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index_[HashKey(entries[i].first)] = i;
  } else if (entries.size() > kIndexedFrom) {
    index_[HashKey(key)] = entries.size() - 1;
  }
}

std::optional<Value> Arguments::TakeNamed(std::string_view name) {
  for (auto entry = named.begin(); entry != named.end(); ++entry) {
    if (entry->first != name) continue;
    Value value = std::move(entry->second);
    named.erase(entry);
    return value;
  }
  return std::nullopt;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView: {
      constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(value.as<ViewObject>().what)];
    }
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.as<IteratorObject>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return value.as<FunctionObject>().is_macro ? "Macro" : "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

}  // namespace quire::jinja
