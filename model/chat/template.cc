#include "model/chat/template.h"

#include <new>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/parser.h"
#include "model/tokenizer/utf8.h"

namespace quire::jinja {
namespace {

constexpr char kRaisedPayload[] = "quire/raise_exception";

absl::Status ToStatus(const TemplateError& error) {
  if (error.kind() == ErrorKind::kRaised) {
    absl::Status status = absl::InvalidArgumentError(error.message());
    status.SetPayload(kRaisedPayload, absl::Cord());
    return status;
  }
  return absl::InvalidArgumentError(error.line() > 0
                                        ? absl::StrFormat("chat template, line %d: %s", error.line(), error.message())
                                        : Cat("chat template: ", error.message()));
}

}  // namespace

absl::StatusOr<Template> Template::Compile(std::string_view source, const Limits& limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_template_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("chat template: %d bytes, more than %d (max_template_bytes)",
                                                      source.size(), limits.max_template_bytes));
  }
  if (!utf8::IsValid(source)) return absl::InvalidArgumentError("chat template: not UTF-8");
  try {
    return Template(std::make_shared<const Program>(Parse(source)), limits);
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

absl::StatusOr<std::string> Template::Render(const nlohmann::ordered_json& context, absl::CivilSecond now) const {
  if (!context.is_object()) return absl::InvalidArgumentError("the context of a chat template must be an object");
  try {
    const Value names = Value::FromJson(context);
    return Interpreter(*program_, limits_, now).Run(names.dict());
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

bool Template::IsRaised(const absl::Status& status) { return status.GetPayload(kRaisedPayload).has_value(); }

}  // namespace quire::jinja
