#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nlohmann/json.hpp"

// Values of templates, with Python's types and their meaning. Lists, tuples, dicts and strings never change once made
// (the sandbox forbids it), so values share them freely; namespaces, loops, cyclers, joiners and iterators have state.
namespace quire::jinja {

// Python's int, exact to 127 bits; beyond that operations are an error.
using Int = __int128;

class Value;
class Interpreter;
struct Arguments;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), values(), items()
  kRange,
  kIterator,  // a generator: can be read once, is always true, has no length
  kNamespace,
  kFunction,  // built-in functions, methods bound to their value, macros
  kLoop,
  kCycler,
  kJoiner,
};

// What values share. `depth` is how deep values nest in it: bounded, since printing, comparing and freeing recurse.
struct Object {
  explicit Object(int32_t nested = 1) : depth(nested) {}
  virtual ~Object() = default;
  int32_t depth;
};

struct UndefinedObject;
struct StringObject;
struct SequenceObject;
struct DictObject;

class Value {
 public:
  Value();  // undefined, without a name
  static Value None() { return Value(Kind::kNone, std::monostate{}); }
  static Value Bool(bool value) { return Value(Kind::kBool, value); }
  static Value Integer(Int value) { return Value(Kind::kInt, value); }
  static Value Float(double value) { return Value(Kind::kFloat, value); }
  // Valid UTF-8. `markup`: HTML that `safe` or `escape` made, which escapes what is added to it.
  static Value String(std::string text, bool markup = false);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Dict(std::shared_ptr<DictObject> dict);
  static Value Undefined(std::string message, bool security = false);
  static Value Of(Kind kind, std::shared_ptr<Object> object) { return Value(kind, std::move(object)); }
  // Numbers beyond int64 and uint64 become floats, as nlohmann reads them.
  static Value FromJson(const nlohmann::ordered_json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  bool boolean() const { return std::get<bool>(rep_); }
  double floating() const { return std::get<double>(rep_); }
  Int integer() const { return is(Kind::kBool) ? Int{boolean()} : std::get<Int>(rep_); }  // is_integral()
  const std::string& text() const;                                                        // kString
  bool markup() const;                                                                    // kString
  const std::vector<Value>& items() const;                                                // is_sequence()
  const DictObject& dict() const;                                                         // kDict
  const UndefinedObject& undefined() const;                                               // kUndefined

  template <typename T>
  T& as() const {
    return static_cast<T&>(*std::get<std::shared_ptr<Object>>(rep_));
  }
  template <typename T>
  std::shared_ptr<T> shared() const {
    return std::static_pointer_cast<T>(std::get<std::shared_ptr<Object>>(rep_));
  }
  const Object* address() const;  // null for values without an object
  int32_t depth() const { return address() == nullptr ? 0 : address()->depth; }

 private:
  using Rep = std::variant<std::monostate, bool, Int, double, std::shared_ptr<Object>>;
  Value(Kind kind, Rep rep) : kind_(kind), rep_(std::move(rep)) {}

  Kind kind_;
  Rep rep_;
};

// 1 + the deepest of `values`; an error beyond the bound.
int32_t DepthAround(int32_t deepest);

struct UndefinedObject : Object {
  std::string message;
  bool security = false;  // the sandbox refused the access: using the value says so
};

struct StringObject : Object {
  std::string text;
  int64_t num_chars = 0;  // code points
  bool markup = false;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  bool group = false;  // what groupby yields: has attributes grouper and list
};

// A dict in order of insertion. Keys are hashable values; 1, 1.0 and true are one key.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* Find(const Value& key) const;  // null if absent; throws on a key that has no hash
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);

 private:
  absl::flat_hash_map<std::string, size_t> index_;
};

// What makes two keys equal, as text. Throws TypeError's text for lists and dicts.
std::string HashKey(const Value& key);

struct ViewObject : Object {
  enum class What : uint8_t { kKeys, kValues, kItems };
  std::shared_ptr<DictObject> dict;
  What what = What::kKeys;
};

struct RangeObject : Object {
  int64_t stop = 0;  // as given
  int64_t start = 0;
  int64_t step = 1;
  int64_t size = 0;
};

struct IteratorObject : Object {
  std::string type_name;             // Python's, for messages
  std::function<bool(Value*)> next;  // false at the end, and from then on
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct FunctionObject : Object {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
  // Macros only: what their attributes say.
  bool is_macro = false;
  std::vector<std::string> parameters;
  bool catch_kwargs = false;
  bool catch_varargs = false;
  bool accesses_caller = false;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  std::optional<Value> TakeNamed(std::string_view name);
};

// Python's name of the value's type: "str", "NoneType", ...
std::string_view TypeName(const Value& value);

}  // namespace quire::jinja
