#pragma once

#include <cstdint>

#include "gtest/gtest.h"
#include "scheduler/engine_options.h"
#include "tests/simt/simt_test.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {

// A tiny model on the CUDA backend.
class SimtEngineTest : public simt::SimtTest {
 protected:
  void SetUp() override {
    SimtTest::SetUp();
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    options_.model_path = *model;
    options_.device = DeviceKind::kCuda;
    options_.num_threads = 1;
    options_.max_model_len = 96;
    options_.block_size = 16;
    options_.num_kv_blocks = 64;
    options_.host_kv_bytes = 0;
    options_.deterministic = true;
    options_.scheduler.max_num_batched_tokens = 128;
  }

  EngineOptions options_;
};

}  // namespace quire::testing
