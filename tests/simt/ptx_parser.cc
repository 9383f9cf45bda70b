#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/simt/ptx.h"

namespace quire::simt::ptx {
namespace {

const std::unordered_map<std::string, Type> kTypes = {
    {"pred", Type::kPred},     {"b8", Type::kB8},       {"u8", Type::kU8},         {"s8", Type::kS8},
    {"b16", Type::kB16},       {"u16", Type::kU16},     {"s16", Type::kS16},       {"f16", Type::kF16},
    {"bf16", Type::kBf16},     {"b32", Type::kB32},     {"u32", Type::kU32},       {"s32", Type::kS32},
    {"f32", Type::kF32},       {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBf16x2}, {"b64", Type::kB64},
    {"u64", Type::kU64},       {"s64", Type::kS64},     {"f64", Type::kF64},       {"e4m3x2", Type::kE4m3x2},
    {"e5m2x2", Type::kE5m2x2}, {"b128", Type::kB128}};

const std::unordered_map<std::string, Opcode> kOpcodes = {{"mov", Opcode::kMov},
                                                          {"ld", Opcode::kLd},
                                                          {"st", Opcode::kSt},
                                                          {"add", Opcode::kAdd},
                                                          {"sub", Opcode::kSub},
                                                          {"mul", Opcode::kMul},
                                                          {"mad", Opcode::kMad},
                                                          {"div", Opcode::kDiv},
                                                          {"rem", Opcode::kRem},
                                                          {"fma", Opcode::kFma},
                                                          {"min", Opcode::kMin},
                                                          {"max", Opcode::kMax},
                                                          {"neg", Opcode::kNeg},
                                                          {"abs", Opcode::kAbs},
                                                          {"and", Opcode::kAnd},
                                                          {"or", Opcode::kOr},
                                                          {"xor", Opcode::kXor},
                                                          {"not", Opcode::kNot},
                                                          {"lop3", Opcode::kLop3},
                                                          {"shl", Opcode::kShl},
                                                          {"shr", Opcode::kShr},
                                                          {"shf", Opcode::kShf},
                                                          {"setp", Opcode::kSetp},
                                                          {"selp", Opcode::kSelp},
                                                          {"cvt", Opcode::kCvt},
                                                          {"cvta", Opcode::kCvta},
                                                          {"bra", Opcode::kBra},
                                                          {"bar", Opcode::kBar},
                                                          {"barrier", Opcode::kBar},
                                                          {"shfl", Opcode::kShfl},
                                                          {"vote", Opcode::kVote},
                                                          {"mma", Opcode::kMma},
                                                          {"ldmatrix", Opcode::kLdMatrix},
                                                          {"cp", Opcode::kCp},
                                                          {"membar", Opcode::kFence},
                                                          {"fence", Opcode::kFence},
                                                          {"atom", Opcode::kAtom},
                                                          {"red", Opcode::kRed},
                                                          {"ret", Opcode::kRet},
                                                          {"exit", Opcode::kRet},
                                                          {"ex2", Opcode::kEx2},
                                                          {"lg2", Opcode::kLg2},
                                                          {"rcp", Opcode::kRcp},
                                                          {"sqrt", Opcode::kSqrt},
                                                          {"rsqrt", Opcode::kRsqrt},
                                                          {"tanh", Opcode::kTanh},
                                                          {"bfi", Opcode::kBfi},
                                                          {"bfe", Opcode::kBfe},
                                                          {"popc", Opcode::kPopc},
                                                          {"clz", Opcode::kClz},
                                                          {"brev", Opcode::kBrev},
                                                          {"prmt", Opcode::kPrmt},
                                                          {"nanosleep", Opcode::kNanosleep},
                                                          {"trap", Opcode::kTrap},
                                                          {"redux", Opcode::kRedux},
                                                          {"mbarrier", Opcode::kMbarrier},
                                                          {"wgmma", Opcode::kWgmma}};

const char* const kSpecials[] = {"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%dynamic_smem_size"};

[[noreturn]] void Fail(int line, const std::string& what) {
  throw std::runtime_error("ptx line " + std::to_string(line) + ": " + what);
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool StartsWith(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

// At commas outside brackets.
std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(Trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!Trim(part).empty()) parts.push_back(Trim(part));
  return parts;
}

std::vector<std::string> SplitAtDots(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

struct Statement {
  std::string text;
  int line;
};

// Statements without their semicolons; "{" and "}" alone or at the end of a kernel's head; labels with their colon.
class StatementReader {
 public:
  std::vector<Statement> Read(std::istream& stream) {
    std::string line;
    for (line_ = 1; std::getline(stream, line); ++line_) {
      line = line.substr(0, line.find("//"));
      if (Trim(current_).empty() && IsIgnored(Trim(line))) continue;
      for (const char c : line) Take(c);
      current_ += ' ';
    }
    return std::move(statements_);
  }

 private:
  static bool IsIgnored(const std::string& line) {
    for (const char* directive : {".version", ".target", ".address_size", ".loc", ".file", ".section", ".pragma"}) {
      if (StartsWith(line, directive)) return true;
    }
    return false;
  }

  void Take(char c) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (begin_ == 0 && !blank) begin_ = line_;
    if (c == '{') {
      const std::string before = Trim(current_);
      if (before.empty() || before.find(".entry") != std::string::npos || before.find(".func") != std::string::npos) {
        Emit(before + "{");
        return;
      }
      ++braces_;
    } else if (c == '}' && braces_ > 0) {
      --braces_;
    } else if (c == '}') {
      Flush();
      Emit("}");
      return;
    } else if (c == ';') {
      Flush();
      return;
    } else if (c == ':' && braces_ == 0) {
      const std::string label = Trim(current_);
      if (!label.empty() && label.find_first_of(" .") == std::string::npos) {
        Emit(label + ":");
        return;
      }
    }
    current_ += c;
  }

  void Flush() {
    if (!Trim(current_).empty()) Emit(Trim(current_));
    current_.clear();
    begin_ = 0;
  }
  void Emit(const std::string& text) {
    statements_.push_back({text, begin_});
    current_.clear();
    begin_ = 0;
  }

  std::vector<Statement> statements_;
  std::string current_;
  int line_ = 1, begin_ = 0, braces_ = 0;
};

// A declaration such as ".align 16 .b8 name[96]".
struct Declaration {
  std::string name;
  size_t alignment = 1, bytes = 0;
};

Declaration ParseDeclaration(const std::string& text) {
  Declaration result;
  std::stringstream stream(text);
  size_t element = 1, count = 1;
  for (std::string word; stream >> word;) {
    if (word == ".align") {
      stream >> result.alignment;
    } else if (word[0] == '.') {
      const auto type = kTypes.find(word.substr(1));
      if (type != kTypes.end()) element = static_cast<size_t>(SizeOf(type->second));
    } else {
      const size_t bracket = word.find('[');
      result.name = word.substr(0, bracket);
      if (bracket != std::string::npos && word[bracket + 1] != ']') count = std::stoul(word.substr(bracket + 1));
    }
  }
  result.alignment = std::max(result.alignment, element);
  result.bytes = element * count;
  return result;
}

size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class Parser {
 public:
  explicit Parser(std::unordered_map<std::string, Kernel>* kernels) : kernels_(*kernels) {}

  void Parse(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      if (kernel_ == nullptr) {
        if (statement.text.find(".entry") != std::string::npos) BeginKernel(statement.text);
      } else {
        ParseBody(statement);
      }
    }
  }

 private:
  void BeginKernel(const std::string& head) {
    const size_t after = head.find(".entry") + 6, open = head.find('(', after);
    const size_t name_end = open != std::string::npos ? open : head.find_first_of(" {", after + 1);
    kernel_ = &(kernels_[Trim(head.substr(after, name_end - after))] = {});
    registers_.clear();
    scopes_.clear();
    branches_.clear();
    labels_.clear();
    if (open == std::string::npos) return;
    for (const std::string& parameter : SplitAtCommas(head.substr(open + 1, head.find(')', open) - open - 1))) {
      const Declaration d = ParseDeclaration(parameter);
      const size_t offset = RoundUp(kernel_->parameter_bytes, d.alignment);
      kernel_->parameters.push_back({d.name, offset});
      kernel_->parameter_bytes = offset + d.bytes;
    }
  }

  void EndKernel() {
    for (const auto& [index, label] : branches_) {
      const auto target = labels_.find(label);
      if (target == labels_.end()) Fail(kernel_->code[index].line, "no label " + label);
      kernel_->code[index].target = target->second;
    }
    kernel_->num_registers = static_cast<int>(registers_.size());
    kernel_ = nullptr;
  }

  void ParseBody(const Statement& statement) {
    const std::string& text = statement.text;
    if (text == "{") {
      scopes_.emplace_back();
    } else if (text == "}" && scopes_.empty()) {
      EndKernel();
    } else if (text == "}") {
      scopes_.pop_back();
    } else if (text.back() == ':') {
      labels_[text.substr(0, text.size() - 1)] = static_cast<int>(kernel_->code.size());
    } else if (StartsWith(text, ".reg")) {
      if (!scopes_.empty()) DeclareScoped(text);
    } else if (StartsWith(text, ".shared")) {
      const Declaration d = ParseDeclaration(text);
      kernel_->shared[d.name] = RoundUp(kernel_->shared_bytes, d.alignment);
      kernel_->shared_bytes = kernel_->shared[d.name] + d.bytes;
    } else if (StartsWith(text, ".local")) {
      const Declaration d = ParseDeclaration(text);
      kernel_->local_name = d.name;
      kernel_->local_bytes = d.bytes;
    } else if (text[0] != '.') {
      ParseInstruction(text, statement.line);
    }
  }

  // Inline assembly declares registers in braces: they get names of their own.
  void DeclareScoped(const std::string& text) {
    for (const std::string& name : SplitAtCommas(text.substr(text.find_first_of(" \t", 5)))) {
      const std::string last = name.substr(name.find_last_of(" \t") + 1);
      scopes_.back()[last] = last + "$" + std::to_string(num_scoped_++);
      Register(last);
    }
  }

  std::string Renamed(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto it = scope->find(name);
      if (it != scope->end()) return it->second;
    }
    return name;
  }
  int Register(const std::string& name) {
    return registers_.emplace(Renamed(name), static_cast<int>(registers_.size())).first->second;
  }
  bool IsRegister(const std::string& name) const { return name[0] == '%' || registers_.count(Renamed(name)) != 0; }

  Operand ParseSpecialOrRegister(const std::string& text) {
    Operand operand;
    for (size_t i = 0; i < std::size(kSpecials); ++i) {
      if (text != kSpecials[i] && !StartsWith(text, std::string(kSpecials[i]) + ".")) continue;
      operand.kind = Operand::Kind::kSpecial;
      operand.value = i;
      operand.reg = text.back() == 'y' ? 1 : text.back() == 'z' ? 2 : 0;
      return operand;
    }
    operand.kind = Operand::Kind::kRegister;
    operand.reg = Register(text);
    return operand;
  }

  static Operand ParseImmediate(std::string text) {
    Operand operand;
    operand.kind = Operand::Kind::kImmediate;
    const bool is_float = text.size() > 2 && text[0] == '0' && std::string("fFdD").find(text[1]) != std::string::npos;
    if (is_float) {
      operand.value = std::stoull(text.substr(2), nullptr, 16);
    } else if (text[0] == '-') {
      operand.value = static_cast<uint64_t>(std::stoll(text, nullptr, 0));
    } else {
      while (text.back() == 'U') text.pop_back();
      operand.value = std::stoull(text, nullptr, 0);
    }
    return operand;
  }

  // "[base + offset]", or "[map, {x, y}]" of a TMA load as a vector.
  Operand ParseAddress(const std::string& inside, int line) {
    const std::vector<std::string> parts = SplitAtCommas(inside);
    Operand operand;
    if (parts.size() > 1) {
      operand.kind = Operand::Kind::kVector;
      operand.parts.push_back(ParseAddress(parts[0], line));
      operand.parts.push_back(ParseOperand(parts[1], line));
      return operand;
    }
    operand.kind = Operand::Kind::kAddress;
    const size_t plus = inside.find('+');
    const std::string base = Trim(inside.substr(0, plus));
    if (plus != std::string::npos) operand.value = static_cast<uint64_t>(std::stoll(Trim(inside.substr(plus + 1))));
    if (IsRegister(base)) {
      operand.reg = Register(base);
    } else {
      operand.name = base;
    }
    return operand;
  }

  Operand ParseVector(const std::vector<std::string>& parts, int line) {
    Operand operand;
    operand.kind = Operand::Kind::kVector;
    for (const std::string& part : parts) operand.parts.push_back(ParseOperand(part, line));
    return operand;
  }

  Operand ParseOperand(const std::string& text, int line) {
    if (text.empty()) Fail(line, "empty operand");
    if (text[0] == '{') return ParseVector(SplitAtCommas(text.substr(1, text.size() - 2)), line);
    if (text[0] == '[') return ParseAddress(Trim(text.substr(1, text.size() - 2)), line);
    if (text[0] == '!') {
      Operand operand = ParseOperand(text.substr(1), line);
      operand.negated = true;
      return operand;
    }
    const size_t bar = text.find('|');
    if (bar != std::string::npos) return ParseVector({Trim(text.substr(0, bar)), Trim(text.substr(bar + 1))}, line);
    if (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-') return ParseImmediate(text);
    if (IsRegister(text)) return ParseSpecialOrRegister(text);
    Operand operand;
    operand.name = text;
    return operand;
  }

  static void ApplyModifiers(Instruction* in) {
    for (const std::string& m : in->modifiers) {
      const auto type = kTypes.find(m);
      if (type != kTypes.end()) (in->type == Type::kNone ? in->type : in->source_type) = type->second;
      if (m == "wide") in->wide = true;
      if (m == "hi") in->high = true;
      if (m == "v2") in->vector = 2;
      if (m == "v4") in->vector = 4;
      if (m == "shared" || StartsWith(m, "shared::")) in->space = Space::kShared;
      if (m == "param") in->space = Space::kParam;
      if (m == "local") in->space = Space::kLocal;
    }
  }

  void ParseInstruction(std::string text, int line) {
    Instruction in;
    in.line = line;
    if (text[0] == '@') {
      const size_t end = text.find_first_of(" \t");
      std::string predicate = text.substr(1, end - 1);
      if (predicate[0] == '!') {
        in.predicate_negated = true;
        predicate = predicate.substr(1);
      }
      in.predicate = Register(predicate);
      text = Trim(text.substr(end));
    }
    const size_t end = text.find_first_of(" \t");
    std::vector<std::string> parts = SplitAtDots(text.substr(0, end));
    const std::string rest = end == std::string::npos ? "" : Trim(text.substr(end));
    const auto opcode = kOpcodes.find(parts[0]);
    if (opcode == kOpcodes.end()) Fail(line, "opcode not known: " + text);
    in.opcode = opcode->second;
    in.modifiers.assign(parts.begin() + 1, parts.end());
    ApplyModifiers(&in);
    for (const std::string& operand : SplitAtCommas(rest)) {
      // The sink of a result nobody reads.
      in.operands.push_back(operand == "_" ? Operand{} : ParseOperand(operand, line));
    }
    if (in.opcode == Opcode::kBra) branches_.push_back({kernel_->code.size(), rest});
    kernel_->code.push_back(std::move(in));
  }

  std::unordered_map<std::string, Kernel>& kernels_;
  Kernel* kernel_ = nullptr;
  std::unordered_map<std::string, int> registers_, labels_;
  std::vector<std::unordered_map<std::string, std::string>> scopes_;
  std::vector<std::pair<size_t, std::string>> branches_;
  int num_scoped_ = 0;
};

}  // namespace

int SizeOf(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kE4m3x2:
    case Type::kE5m2x2:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    case Type::kB128:
      return 16;
    default:
      return 4;
  }
}

bool IsSigned(Type type) { return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64; }

uint64_t Narrow(Type type, uint64_t bits) {
  const int width = SizeOf(type) * 8;
  if (width >= 64) return bits;
  const uint64_t low = bits & ((uint64_t{1} << width) - 1);
  if (!IsSigned(type)) return low;
  const int shift = 64 - width;
  return static_cast<uint64_t>(static_cast<int64_t>(low << shift) >> shift);
}

bool Instruction::Has(const char* modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

const std::string& Instruction::Modifier(size_t i) const {
  static const std::string none;
  return i < modifiers.size() ? modifiers[i] : none;
}

void Parse(const std::string& path, std::unordered_map<std::string, Kernel>* kernels) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Parser(kernels).Parse(StatementReader().Read(file));
}

}  // namespace quire::simt::ptx
