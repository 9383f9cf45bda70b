// What the engine says when the emulated device cannot go on.

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "scheduler/engine.h"
#include "scheduler/request.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/simt/engine_case.h"
#include "tests/simt/runtime_emulator.h"

namespace quire::testing {
namespace {

TEST_F(SimtEngineTest, OutOfDeviceMemoryNamesTheBytes) {
  simt::EmulatedDevice& device = simt::emulated_device();
  const int64_t limit = device.limit_bytes;
  EXPECT_EQ(device.used_bytes, 0);  // engines give back all they took
  device.limit_bytes = 200'000;     // the weights do not fit
  options_.num_kv_blocks = 16;
  options_.max_model_len = 0;
  const absl::Status status = CreateEngine(options_).status();
  device.limit_bytes = limit;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("bytes of device memory are needed"), std::string::npos) << status;
  EXPECT_EQ(device.used_bytes, 0);
}

TEST_F(SimtEngineTest, AFailedDeviceFailsEveryStreamAndIsReportedOnce) {
  int reports = 0;
  options_.on_device_failure = [&reports](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    ++reports;
  };
  auto engine = CreateEngine(options_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  simt::emulated_device().fails = true;
  OutputCollector collector(**engine, 1);
  for (uint64_t handle = 1; handle <= 2; ++handle) {
    EngineRequest request =
        MakeEngineRequest({1, 2, 3}, SamplingParams(), options_.block_size, (*engine)->info().key_context);
    request.handle = handle;
    ASSERT_TRUE((*engine)->Submit(std::move(request)).ok());
    if (handle == 1) (*engine)->Start();
    EXPECT_EQ(collector.Await(handle).last.finish_reason, FinishReason::kError);
  }
  (*engine)->Stop();
  collector.Join();
  EXPECT_EQ(reports, 1);
  simt::emulated_device().fails = false;
}

}  // namespace
}  // namespace quire::testing
