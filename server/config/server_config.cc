#include "server/config/server_config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/config/exit_code.h"
#include "server/config/flag_helpers.h"

namespace quire {
namespace {

// "max-num-seqs" -> "QUIRE_MAX_NUM_SEQS"
std::string EnvironmentName(const std::string& option) {
  std::string name = "QUIRE_";
  for (char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

constexpr int64_t kMostRequestBytes = 1 << 30;

void AddServerFlags(CLI::App& app, ServerConfig& config) {
  app.add_option("--grpc-listen", config.grpc_listen,
                 "HOST:PORT, port 0 picks a free one; or unix:PATH; empty: no gRPC")
      ->capture_default_str()
      ->type_name("ADDRESS");
  app.add_option("--schedule-trace-dir", config.engine.schedule_trace_dir,
                 "where `quire trace start` may make files; default: nowhere, and it is refused")
      ->type_name("DIRECTORY");
  app.add_option("--admin-listen", config.admin_listen,
                 "HOST:PORT or unix:PATH for quire.v1.Admin, which is then not at --grpc-listen; default: there")
      ->type_name("ADDRESS");
  app.add_option("--http-listen", config.http_listen,
                 "HOST:PORT of the OpenAI API, port 0 picks a free one; empty: no HTTP")
      ->capture_default_str()
      ->type_name("ADDRESS");
  app.add_option_function<std::string>(
         "--max-request-bytes",
         [&config](const std::string& text) {
           const absl::StatusOr<int64_t> value = ParseBytes(text);
           if (!value.ok() || *value < 1024 || *value > kMostRequestBytes)
             RefuseValue("--max-request-bytes", text, "a size in [1KiB, 1GiB]");
           config.max_request_bytes = *value;
         },
         "of a request, over HTTP and gRPC")
      ->default_str("64MiB");
  AddIntFlag(app, "--max-connections", config.max_connections, 1, 1'000'000, "over HTTP; beyond: 503");
  AddSecondsFlag(app, "--http-idle-timeout", config.http_idle_timeout, 0.1, 86400,
                 "seconds that an HTTP connection may wait between requests");
  app.add_option("--allowed-origins", config.allowed_origins,
                 "origins whose pages may read answers over HTTP (CORS), such as https://chat.example; * is any")
      ->type_name("ORIGIN");
  app.add_option("--api-key-file", config.api_key_file,
                 "keys that callers must show, one a line: KEY [TENANT [user|admin]]; SIGHUP reads it again")
      ->type_name("PATH");
  app.add_flag("--metrics-without-key", config.metrics_without_key, "/metrics needs no key");
  app.add_option_function<std::string>(
         "--metrics-compat",
         [&config](const std::string& names) {
           if (names != "vllm" && names != "none") RefuseValue("--metrics-compat", names, "vllm or none");
           config.vllm_metrics = names == "vllm";
         },
         "vllm: /metrics has the names of vLLM's metrics beside its own; none: its own only")
      ->default_str("vllm");
  constexpr double kDay = 86400;
  AddSecondsFlag(app, "--drain-timeout", config.drain_timeout, 0, kDay,
                 "seconds that SIGTERM leaves to queued and running requests");
  AddSecondsFlag(app, "--lame-duck", config.lame_duck, 0, kDay,
                 "seconds after SIGTERM: not ready, but still accepting");
  AddSecondsFlag(app, "--stall-timeout", config.stall_timeout, 0.01, kDay,
                 "seconds after which a client that does not read is cancelled");
  AddIntFlag(app, "--fork-memory-tokens", config.fork_memory_tokens, 0, int64_t{1} << 40,
             "tokens of finished requests that Fork can still name, 4 bytes each; 0: live requests only");
  app.add_option_function<std::string>(
         "--log-level",
         [&config](const std::string& level) {
           const std::vector<std::string> levels = {"trace", "debug", "info", "warn", "error", "off"};
           if (std::find(levels.begin(), levels.end(), level) == levels.end())
             RefuseValue("--log-level", level, "trace, debug, info, warn, error or off");
           config.log_level = level;
         },
         "trace, debug, info, warn, error or off")
      ->default_str(config.log_level);
  app.add_option_function<std::string>(
         "--log-format",
         [&config](const std::string& format) {
           if (format != "text" && format != "json") RefuseValue("--log-format", format, "text or json");
           config.log_json = format == "json";
         },
         "text or json, one line an event, on stderr")
      ->default_str("text");
}

bool IsGiven(const CLI::Option& option, const std::vector<std::string>& args) {
  const std::vector<std::string>& names = option.get_lnames();
  return std::any_of(args.begin(), args.end(), [&names](const std::string& arg) {
    return std::any_of(names.begin(), names.end(), [&arg](const std::string& name) {
      return arg == "--" + name || arg.rfind("--" + name + "=", 0) == 0;
    });
  });
}

// Whether the command line has an option that excludes this one, which then does not count where else it is given.
bool IsBeaten(const CLI::Option& option, const std::vector<std::string>& args) {
  const std::set<CLI::Option*> rivals = option.get_excludes();
  return std::any_of(rivals.begin(), rivals.end(), [&args](const CLI::Option* rival) { return IsGiven(*rival, args); });
}

// The arguments, preceded by those that the environment gives and the command line does not: CLI11 itself would let the
// file of --config win over the environment.
std::vector<std::string> WithEnvironment(const CLI::App& app, std::vector<std::string> args) {
  std::vector<std::string> merged;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable() && !option->check_lname("config")) continue;
    if (IsGiven(*option, args) || IsBeaten(*option, args)) continue;
    const std::string& name = option->get_lnames().front();
    const char* value = std::getenv(EnvironmentName(name).c_str());
    if (value != nullptr) merged.push_back("--" + name + "=" + value);
  }
  merged.insert(merged.end(), args.begin(), args.end());
  return merged;
}

// Reads the file of --config, but for what the command line beats.
class FileOptions final : public CLI::ConfigTOML {
 public:
  FileOptions(const CLI::App& app, const std::vector<std::string>& args) : app_(app), args_(args) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    std::erase_if(items, [this](const CLI::ConfigItem& item) {
      const CLI::Option* option = app_.get_option_no_throw("--" + item.name);
      return option != nullptr && item.parents.empty() && IsBeaten(*option, args_);
    });
    return items;
  }

 private:
  const CLI::App& app_;
  const std::vector<std::string>& args_;
};

// The effective options as TOML that --config reads back. CLI11 writes options without a value as "": those are left
// out, since most of them mean something else by it.
void PrintConfig(const CLI::App& app) {
  std::istringstream lines(app.config_to_str(/*default_also=*/true, /*write_description=*/false));
  for (std::string line; std::getline(lines, line);) {
    const bool unset = line.size() >= 3 && line.compare(line.size() - 3, 3, "=\"\"") == 0;
    if (!unset) std::cout << line << '\n';
  }
}

}  // namespace

std::optional<ServerConfig> ParseServerConfig(int argc, const char* const* argv, int* exit_code) {
  ServerConfig config;
  CLI::App app("quired: serves a language model over gRPC and HTTP", "quired");
  AddEngineFlags(app, config.engine);
  AddModelFlags(app, config.model);
  AddServerFlags(app, config);
  bool print_config = false;
  app.add_flag("--print-config", print_config, "print the resulting options as TOML and exit")->configurable(false);
  app.add_flag("--check-config", config.check_only, "load everything, then exit with the code that starting would give")
      ->configurable(false);
  app.set_version_flag("--version", std::string("quired ") + kVersion)->configurable(false);
  app.set_config("--config", "", "TOML file with options, names without the dashes");
  app.allow_config_extras(CLI::config_extras_mode::error);

  const std::vector<std::string> given(argv + 1, argv + argc);
  app.config_formatter(std::make_shared<FileOptions>(app, given));
  try {
    std::vector<std::string> args = WithEnvironment(app, given);
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    *exit_code = ReportParseError(app, error, given);
    return std::nullopt;
  }
  if (config.grpc_listen.empty() && (config.http_listen.empty() || !config.admin_listen.empty())) {
    std::cerr << "quired: --grpc-listen: must not be empty without --http-listen, or with --admin-listen\n";
    *exit_code = kExitUsage;
    return std::nullopt;
  }
  if (print_config) {
    PrintConfig(app);
    *exit_code = 0;
    return std::nullopt;
  }
  if (config.model.served_model_names.empty())
    config.model.served_model_names = {DefaultModelName(config.engine.model_path)};
  return config;
}

}  // namespace quire
