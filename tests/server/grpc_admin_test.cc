#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/server/grpc_admin_fixture.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(AdminTest, WarmedPrefixesAreListedAsAskedForAndFound) {
  v1::WarmPrefixRequest request;
  *request.mutable_prefix()->mutable_token_ids() = Ids(10, 20);
  request.mutable_prefix()->set_salt("s");
  request.mutable_prefix()->set_tenant("acme");
  request.mutable_keep()->set_priority(90);
  request.mutable_keep()->set_ttl_seconds(1000);
  v1::WarmPrefixResponse warmed;
  ASSERT_TRUE(Warm(request, &warmed).ok());
  EXPECT_EQ(warmed.prompt_tokens(), 20u);
  EXPECT_EQ(warmed.cached_tokens(), 0u);
  EXPECT_EQ(warmed.computed_tokens(), 20u);

  const v1::ListPrefixesResponse list = List();
  ASSERT_EQ(list.prefixes_size(), 1);
  const v1::CachedPrefix& prefix = list.prefixes(0);
  EXPECT_EQ(list.total(), 1u);
  EXPECT_EQ(list.next_page_token(), "");
  EXPECT_EQ(prefix.tokens(), 20u);
  EXPECT_EQ(prefix.blocks(), 3u);
  EXPECT_EQ(prefix.bytes(), 3u * kBlockSize * engine_->info().kv_bytes_per_token);
  EXPECT_EQ(prefix.priority(), 90u);
  EXPECT_EQ(prefix.tenant(), "acme");
  EXPECT_FALSE(prefix.in_use());
  EXPECT_EQ(prefix.root().size(), 16u);
  EXPECT_EQ(prefix.key().size(), 16u);
  EXPECT_GT(prefix.expires_in_seconds(), 0);
  EXPECT_LE(prefix.expires_in_seconds(), 1000);

  v1::Cache salted;
  salted.set_salt("s");
  EXPECT_EQ(Generate(Ids(10, 20), "acme", salted).cached_tokens(), 19u);
  ASSERT_TRUE(Warm(request, &warmed).ok());
  EXPECT_EQ(warmed.cached_tokens(), 19u);
  EXPECT_EQ(warmed.computed_tokens(), 1u);
  EXPECT_EQ(Generate(Ids(10, 20), "", salted).cached_tokens(), 0u) << "another tenant";
  EXPECT_EQ(Generate(Ids(10, 20), "acme").cached_tokens(), 0u) << "another salt";
}

TEST_F(AdminTest, PagesMeetEachPrefixOnceAlsoThoseOfEqualPlace) {
  // Three part-filled blocks behind one root, of equal length: one place in the order.
  for (int i = 0; i < 3; ++i) Generate(Ids(100 * (i + 1), 3));
  for (int i = 0; i < 4; ++i) Generate(Ids(1000 * (i + 1), 17), "t");
  v1::ListPrefixesRequest request;
  request.set_limit(2);
  int found = 0, pages = 0;
  uint64_t tokens = 0;
  do {
    const v1::ListPrefixesResponse page = List(request);
    EXPECT_EQ(page.total(), 7u);
    EXPECT_LE(page.prefixes_size(), 2);
    found += page.prefixes_size();
    for (const v1::CachedPrefix& prefix : page.prefixes()) tokens += prefix.tokens();
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(found, 7);
  EXPECT_EQ(pages, 4);
  EXPECT_EQ(tokens, 3u * 3 + 4 * 17);

  v1::ListPrefixesRequest of_tenant;
  of_tenant.set_tenant("t");
  EXPECT_EQ(List(of_tenant).total(), 4u);
  of_tenant.set_tenant("");
  EXPECT_EQ(List(of_tenant).total(), 3u);
  of_tenant.set_tenant("nobody-has-this-name");
  EXPECT_EQ(List(of_tenant).total(), 0u);
}

TEST_F(AdminTest, DropsPrefixesSaltsTenantsAndEverything) {
  v1::Cache salted;
  salted.set_salt("s");
  Generate(Ids(10, 17));               // 3 blocks
  Generate(Ids(10, 17), "t");          // 3
  Generate(Ids(10, 17), "t", salted);  // 3
  Generate(Ids(50, 17), "t");          // 3

  uint32_t dropped = 0;
  v1::DropPrefixRequest request;
  *request.mutable_prefix()->mutable_token_ids() = Ids(10, 12);
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 2u) << "the first block holds more than the prefix, and is kept";
  EXPECT_EQ(Generate(Ids(10, 17)).cached_tokens(), 8u);
  request.mutable_prefix()->set_tenant("t");
  request.mutable_prefix()->mutable_token_ids()->mutable_ids()->Truncate(1);
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 3u);
  request.mutable_prefix()->clear_prompt();
  request.mutable_prefix()->set_salt("s");
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 3u) << "without a prompt: all of salt and tenant";
  request.set_tenant("t");
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 3u);
  request.set_tenant("unknown");
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 0u);
  request.set_all(true);
  ASSERT_TRUE(Drop(request, &dropped).ok());
  EXPECT_EQ(dropped, 3u);
  EXPECT_EQ(List().total(), 0u);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(AdminTest, AResetWhileARequestRunsLeavesItAlone) {
  gate_.OpenUntil(3);  // the third step waits
  v1::GenerateRequest request;
  *request.mutable_token_ids() = Ids(10, 17);
  request.mutable_stopping()->set_max_tokens(8);
  request.mutable_stopping()->set_ignore_eos(true);
  grpc::ClientContext context;
  auto reader = fixture_.stub->GenerateStream(&context, request);
  gate_.AwaitStep(3);
  grpc::ClientContext reset_context;
  v1::ResetPrefixCacheResponse reset;
  std::thread resetter(
      [&] { EXPECT_TRUE(admin_->ResetPrefixCache(&reset_context, v1::ResetPrefixCacheRequest(), &reset).ok()); });
  gate_.Open();
  int tokens = 0;
  for (v1::GenerateResponse message; reader->Read(&message);) {
    for (const v1::SequenceDelta& delta : message.sequences()) tokens += delta.token_ids_size();
  }
  EXPECT_TRUE(reader->Finish().ok());
  resetter.join();
  EXPECT_EQ(tokens, 8);
  EXPECT_GE(reset.dropped_blocks(), 2u);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(AdminTest, RefusesBadFieldsByName) {
  const auto expect = [](const grpc::Status& status, const std::string& field, const std::string& limit) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), AllOf(::testing::StartsWith(field + ": "), HasSubstr(limit)));
    google::rpc::BadRequest details;
    ASSERT_TRUE(GetDetail(status, &details));
    EXPECT_EQ(details.field_violations(0).field(), field);
  };
  v1::WarmPrefixResponse warmed;
  v1::WarmPrefixRequest warm;
  expect(Warm(warm, &warmed), "prefix.prompt", "missing");
  *warm.mutable_prefix()->mutable_token_ids() = Ids(10, 200);
  expect(Warm(warm, &warmed), "prefix.prompt", "199");
  *warm.mutable_prefix()->mutable_token_ids() = Ids(499'999, 2);
  expect(Warm(warm, &warmed), "prefix.token_ids.ids[1]", "499999");
  warm.mutable_prefix()->set_text("ok");
  warm.mutable_keep()->set_priority(101);
  expect(Warm(warm, &warmed), "keep.priority", "100");
  warm.mutable_keep()->set_priority(100);
  warm.mutable_keep()->set_ttl_seconds(0);
  expect(Warm(warm, &warmed), "keep.ttl_seconds", "2592000");
  warm.mutable_keep()->set_ttl_seconds(1e-12);
  expect(Warm(warm, &warmed), "keep.ttl_seconds", "2592000");
  warm.clear_keep();
  warm.mutable_prefix()->set_salt(std::string(257, 's'));
  expect(Warm(warm, &warmed), "prefix.salt", "256");

  uint32_t dropped = 0;
  v1::DropPrefixRequest drop;
  expect(Drop(drop, &dropped), "what", "tenant");
  drop.set_tenant(std::string(257, 't'));
  expect(Drop(drop, &dropped), "tenant", "256");
  drop.mutable_prefix()->set_tenant(std::string(257, 't'));
  expect(Drop(drop, &dropped), "prefix.tenant", "256");
  // What a script with an empty variable sends must not name everything.
  drop.mutable_prefix()->clear_tenant();
  drop.mutable_prefix()->set_text("");
  drop.mutable_prefix()->set_add_special_tokens(false);
  expect(Drop(drop, &dropped), "prefix.prompt", "at least 1");

  const auto list = [this](const v1::ListPrefixesRequest& request) {
    grpc::ClientContext context;
    v1::ListPrefixesResponse response;
    return admin_->ListPrefixes(&context, request, &response);
  };
  v1::ListPrefixesRequest request;
  request.set_limit(1001);
  expect(list(request), "limit", "1000");
  request.set_limit(1);
  request.set_page_token("1.2.3");
  expect(list(request), "page_token", "page before");
}

// A server with a directory for traces.
class TraceTest : public AdminTest {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.schedule_trace_dir = Folder();
    options.schedule_trace_max_bytes = 1 << 20;
    std::filesystem::remove_all(Folder());
    std::filesystem::create_directory(Folder());
    return options;
  }
  static std::string Folder() { return ::testing::TempDir() + "/grpc_admin_test.traces"; }

  TraceTest() : AdminTest(Options()) {}
  ~TraceTest() override { std::filesystem::remove_all(Folder()); }

  grpc::Status Call(const v1::ScheduleTraceRequest& request, v1::ScheduleTraceResponse* response) {
    grpc::ClientContext context;
    return admin_->ScheduleTrace(&context, request, response);
  }
};

TEST_F(TraceTest, StartsAreCheckedFieldByField) {
  const auto expect = [this](const v1::ScheduleTraceRequest& request, const std::string& field) {
    v1::ScheduleTraceResponse response;
    const grpc::Status status = Call(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    google::rpc::BadRequest details;
    ASSERT_TRUE(GetDetail(status, &details));
    EXPECT_EQ(details.field_violations(0).field(), field);
    EXPECT_TRUE(std::filesystem::is_empty(Folder()));
  };
  v1::ScheduleTraceRequest request;
  request.mutable_start()->set_file("a/../b");
  expect(request, "start.file");
  request.mutable_start()->set_file(std::string("a\0b", 3));
  expect(request, "start.file");
  request.mutable_start()->set_file("a");
  for (const uint64_t max_bytes : {uint64_t{1}, uint64_t{4095}, (uint64_t{1} << 20) + 1, UINT64_MAX}) {
    request.mutable_start()->set_max_bytes(max_bytes);
    expect(request, "start.max_bytes");
  }
  request.mutable_start()->clear_max_bytes();
  for (const double seconds : {-1.0, 3600.1, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    request.mutable_start()->set_max_wait_seconds(seconds);
    expect(request, "start.max_wait_seconds");
  }
  request.mutable_start()->set_max_wait_seconds(0);
  request.set_stop(true);
  expect(request, "stop");
}

TEST_F(TraceTest, ItsStateIsToldInEveryOrderOfCommands) {
  v1::ScheduleTraceRequest nothing, start, stop;
  start.mutable_start();  // a file named after the time
  stop.set_stop(true);
  v1::ScheduleTraceResponse response;
  EXPECT_TRUE(Call(nothing, &response).ok());
  EXPECT_EQ(response.state(), v1::ScheduleTraceResponse::STATE_NONE);
  EXPECT_EQ(Call(stop, &response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(Call(start, &response).ok());
    EXPECT_EQ(response.state(), v1::ScheduleTraceResponse::STATE_PENDING);
    EXPECT_EQ(Call(start, &response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    Generate(Ids(10, 20));
    EXPECT_TRUE(Call(nothing, &response).ok());
    EXPECT_EQ(response.state(), v1::ScheduleTraceResponse::STATE_RECORDING) << response.problem();
    EXPECT_TRUE(response.recording());
    EXPECT_GT(response.records(), 0u);
    EXPECT_TRUE(Call(stop, &response).ok());
    EXPECT_FALSE(response.recording());
    EXPECT_TRUE(Call(stop, &response).ok());  // once more changes nothing
    while (response.state() == v1::ScheduleTraceResponse::STATE_STOPPING) ASSERT_TRUE(Call(nothing, &response).ok());
    EXPECT_EQ(response.state(), v1::ScheduleTraceResponse::STATE_STOPPED);
    EXPECT_EQ(std::filesystem::file_size(response.file()), response.bytes());
  }
}

TEST_F(AdminTest, ACancelledWarmEndsItsRequest) {
  gate_.OpenUntil(1);
  v1::WarmPrefixRequest request;
  *request.mutable_prefix()->mutable_token_ids() = Ids(10, 100);
  grpc::ClientContext context;
  grpc::Status status;
  std::thread warmer([&] {
    v1::WarmPrefixResponse response;
    status = admin_->WarmPrefix(&context, request, &response);
  });
  gate_.AwaitStep(1);
  context.TryCancel();
  warmer.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  gate_.Open();
  EXPECT_TRUE(fixture_.frontend->WaitIdle(absl::InfiniteFuture()));
}

TEST_F(AdminTest, UsageSaysWhyAndWhereTheCacheMissed) {
  v1::Usage usage = Generate(Ids(10, 17));
  EXPECT_EQ(usage.cache_miss().reason(), v1::CacheMiss::REASON_NEVER_SEEN);
  EXPECT_EQ(usage.cache_miss().block(), 0u);
  usage = Generate(Ids(10, 17));
  EXPECT_EQ(usage.cached_tokens(), 16u);
  EXPECT_FALSE(usage.has_cache_miss());
  v1::Cache salted;
  salted.set_salt("other");
  EXPECT_EQ(Generate(Ids(10, 17), "", salted).cache_miss().reason(), v1::CacheMiss::REASON_OTHER_ROOT);
  v1::TokenIds parted = Ids(10, 17);
  parted.set_ids(10, 7);
  usage = Generate(parted);
  EXPECT_EQ(usage.cached_tokens(), 10u);
  EXPECT_EQ(usage.cache_miss().block(), 1u);
  v1::Cache bypass;
  bypass.set_no_read(true);
  usage = Generate(Ids(10, 17), "", bypass);
  EXPECT_EQ(usage.cached_tokens(), 0u);
  EXPECT_EQ(usage.cache_miss().reason(), v1::CacheMiss::REASON_BYPASSED);
  v1::Cache secret;
  secret.set_no_write(true);
  Generate(Ids(90, 17), "", secret);
  EXPECT_EQ(Generate(Ids(90, 17)).cached_tokens(), 0u);
  v1::DropPrefixRequest drop;
  drop.set_all(true);
  uint32_t dropped = 0;
  ASSERT_TRUE(Drop(drop, &dropped).ok());
  usage = Generate(Ids(10, 17));
  EXPECT_EQ(usage.cache_miss().reason(), v1::CacheMiss::REASON_EVICTED);
  EXPECT_TRUE(usage.cache_miss().has_evicted_seconds_ago());
}

TEST_F(AdminTest, RetentionOfARequestReachesItsBlocks) {
  v1::Cache cache;
  v1::RetentionRange* range = cache.add_retention();
  range->set_begin(0);
  range->set_end(8);
  range->mutable_keep()->set_priority(70);
  cache.mutable_decode_retention()->set_priority(5);
  Generate(Ids(10, 8), "", cache);
  ASSERT_EQ(List().prefixes_size(), 1);
  EXPECT_EQ(List().prefixes(0).priority(), 70u);
  v1::Cache marked;
  marked.add_breakpoints()->set_position(16);
  Generate(Ids(10, 16), "t", marked);
  v1::ListPrefixesRequest of_tenant;
  of_tenant.set_tenant("t");
  ASSERT_EQ(List(of_tenant).prefixes_size(), 1);
  EXPECT_EQ(List(of_tenant).prefixes(0).priority(), 80u);
  EXPECT_LE(List(of_tenant).prefixes(0).expires_in_seconds(), 300);
}

class UncachedAdminTest : public AdminTest {
 protected:
  UncachedAdminTest() : AdminTest(Options()) {}

  static EngineOptions Options() {
    EngineOptions options;
    options.scheduler.enable_prefix_caching = false;
    return options;
  }
};

TEST_F(UncachedAdminTest, NothingIsWarmedOrListed) {
  v1::WarmPrefixRequest warm;
  *warm.mutable_prefix()->mutable_token_ids() = Ids(10, 17);
  v1::WarmPrefixResponse warmed;
  const grpc::Status status = Warm(warm, &warmed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--no-enable-prefix-caching"));
  EXPECT_EQ(Generate(Ids(10, 17)).cache_miss().reason(), v1::CacheMiss::REASON_CACHE_OFF);
  EXPECT_EQ(List().total(), 0u);
}

class CrowdedAdminTest : public AdminTest {
 protected:
  CrowdedAdminTest() : AdminTest(Options()) {}

  static EngineOptions Options() {
    EngineOptions options;
    options.eviction.max_pinned_share = 0.125;  // 8 of 64 blocks
    options.tenant_kv_quota = 0.25;
    options.tenant_kv_quotas = {{"big", 0.5}, {"none", 0}};
    return options;
  }
  uint64_t CachedBlocks(const std::string& tenant) {
    v1::ListPrefixesRequest request;
    request.set_tenant(tenant);
    const v1::ListPrefixesResponse list = List(request);
    uint64_t blocks = 0;
    for (const v1::CachedPrefix& prefix : list.prefixes()) blocks += prefix.blocks();
    return blocks;
  }
};

TEST_F(CrowdedAdminTest, TenantsKeepToTheirQuotaOfTheCache) {
  for (const char* tenant : {"a", "b", "big", "none"}) {
    for (int i = 0; i < 10; ++i) Generate(Ids(1000 * i + 1, 8 * 5), tenant);
  }
  EXPECT_EQ(CachedBlocks("none"), 0u);
  EXPECT_LE(CachedBlocks("big"), 32u);
  EXPECT_GT(CachedBlocks("big"), 16u);
  EXPECT_LE(CachedBlocks("a") + CachedBlocks("b"), 32u);
  for (int i = 0; i < 10; ++i) Generate(Ids(1000 * i + 1, 8 * 5), "b");
  EXPECT_LE(CachedBlocks("b"), 16u);
  EXPECT_GE(CachedBlocks("b"), 12u) << "of ten prompts of 5 blocks";
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(CrowdedAdminTest, WhatIsPinnedBeyondTheCapCountsAsOrdinary) {
  v1::WarmPrefixRequest warm;
  warm.mutable_keep()->set_priority(90);
  v1::WarmPrefixResponse warmed;
  for (int begin : {1, 1001}) {
    *warm.mutable_prefix()->mutable_token_ids() = Ids(begin, 8 * 6);
    ASSERT_TRUE(Warm(warm, &warmed).ok());
  }
  uint32_t highest = 0;
  int pinned = 0;
  const v1::ListPrefixesResponse list = List();
  for (const v1::CachedPrefix& prefix : list.prefixes()) {
    highest = std::max(highest, prefix.priority());
    pinned += prefix.priority() == 90 ? 1 : 0;
  }
  EXPECT_EQ(highest, 90u);
  EXPECT_EQ(pinned, 1) << "six blocks of the first prompt and two of the second: its end is ordinary";
}

}  // namespace
}  // namespace quire::testing
