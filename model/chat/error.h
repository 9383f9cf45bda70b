#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace quire::jinja {

enum class ErrorKind : uint8_t {
  kSyntax,     // the template does not parse
  kRuntime,    // what Python calls TypeError, ValueError, ...
  kUndefined,  // an undefined value was used for more than printing it
  kSecurity,   // the sandbox refuses
  kRaised,     // raise_exception, message verbatim
  kLimit,      // steps, depth or bytes
};

// How the parser and the evaluator stop. Never leaves this folder: CompiledTemplate turns it into a Status.
class TemplateError : public std::exception {
 public:
  TemplateError(ErrorKind kind, std::string message, int32_t line = 0)
      : kind_(kind), message_(std::move(message)), line_(line) {}

  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  int32_t line() const { return line_; }  // 0: not known

 private:
  ErrorKind kind_;
  std::string message_;
  int32_t line_;
};

[[noreturn]] inline void Fail(std::string message) { throw TemplateError(ErrorKind::kRuntime, std::move(message)); }

}  // namespace quire::jinja
