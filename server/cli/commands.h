#pragma once

#include "server/cli/options.h"
#include "server/cli/session.h"

namespace quire::cli {

// The subcommands. Each runs to its end and returns the exit code of the process (ExitCode); messages are already
// printed then.

// With a server. All return kExitNoConnection if nobody answers at session.server.
int RunGenerate(const GenerateOptions& options, Session& session);
int RunChat(const ChatOptions& options, Session& session);
int RunStats(const StatsOptions& options, Session& session);
int RunHealth(const HealthOptions& options, Session& session);
int RunModels(const ModelsOptions& options, Session& session);
int RunTokenize(const TokenizeOptions& options, Session& session);
int RunDetokenize(const DetokenizeOptions& options, Session& session);
int RunAbort(const AbortOptions& options, Session& session);
int RunCacheList(const CacheListOptions& options, Session& session);
int RunCacheWarm(const CacheWarmOptions& options, Session& session);
int RunCacheDrop(const CacheDropOptions& options, Session& session);
int RunCacheReset(const CacheResetOptions& options, Session& session);
int RunCacheEvents(const CacheEventsOptions& options, Session& session);
int RunTraceStatus(const TraceOptions& options, Session& session);
int RunTraceStart(const TraceStartOptions& options, Session& session);
int RunTraceStop(const TraceOptions& options, Session& session);
int RunBench(const BenchOptions& options, Session& session);

// Offline.
int RunTokenizerEncode(const TokenizerOptions& options, Session& session);
int RunTokenizerDecode(const TokenizerOptions& options, Session& session);
// Writes tokenizer.json and tokenizer_config.json into a folder, which is made; files that are there stay, and are an
// error.
int RunTokenizerExport(const TokenizerOptions& options, Session& session);
int RunTokenizerRender(const TokenizerOptions& options, Session& session);
int RunInspect(const InspectOptions& options, Session& session);

}  // namespace quire::cli
