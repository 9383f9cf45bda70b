#include "model/chat/sorting.h"

#include <algorithm>

#include "model/chat/attributes.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/text.h"

namespace quire::jinja {

AttributePath::AttributePath(const Value& path) {
  if (path.is(Kind::kNone)) return;
  if (!path.is(Kind::kString)) {
    parts_.push_back(path);
    return;
  }
  const std::string dot = ".";
  for (const std::string& part : Split(path.text(), &dot, -1, false)) {
    const bool digits = IsClass("isdigit", part).value_or(false);
    const auto number = digits ? ParseInt(part, 10) : std::nullopt;
    if (digits && !number.has_value()) Fail("ValueError: invalid literal for int() with base 10");
    parts_.push_back(number.has_value() ? Value::Integer(*number) : Value::String(part));
  }
}

Value AttributePath::Get(Interpreter& in, Value item, const Value* otherwise) const {
  for (const Value& part : parts_) {
    item = GetItem(in, item, part);
    if (otherwise != nullptr && item.is(Kind::kUndefined)) item = *otherwise;
  }
  return item;
}

SortKey::SortKey(const Value& attribute, bool case_sensitive, bool several, const Value* otherwise)
    : case_sensitive_(case_sensitive), several_(several) {
  if (otherwise != nullptr) otherwise_ = *otherwise;
  if (!several || !attribute.is(Kind::kString)) {
    paths_.emplace_back(attribute);
    return;
  }
  const std::string comma = ",";
  for (std::string& path : Split(attribute.text(), &comma, -1, false))
    paths_.emplace_back(Value::String(std::move(path)));
}

Value SortKey::Of(Interpreter& in, const Value& item) const {
  std::vector<Value> keys;
  for (const AttributePath& path : paths_) {
    Value key = path.Get(in, item, otherwise_.has_value() ? &*otherwise_ : nullptr);
    if (!case_sensitive_ && key.is(Kind::kString)) {
      in.budget().Bytes(static_cast<int64_t>(key.text().size()));
      key = Value::String(Lower(key.text()));
    }
    keys.push_back(std::move(key));
  }
  return several_ ? Value::List(std::move(keys)) : std::move(keys[0]);
}

std::vector<Value> Sorted(Interpreter& in, std::vector<Value> items, const SortKey& key, bool reverse) {
  struct Keyed {
    Value key;
    Value item;
  };
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    Value item_key = key.Of(in, item);
    keyed.push_back({std::move(item_key), std::move(item)});
  }
  // A reversed sort keeps equal elements in their order: sort the reverse, then turn it round.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), [&in](const Keyed& left, const Keyed& right) {
    return Compares(in.budget(), CompareOp::kLt, left.key, right.key);
  });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& entry : keyed) out.push_back(std::move(entry.item));
  return out;
}

}  // namespace quire::jinja
