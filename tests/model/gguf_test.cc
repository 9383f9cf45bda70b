#include "model/gguf.h"

#include <limits>

#include "gtest/gtest.h"
#include "tests/model/gguf_builder.h"

namespace quire::testing {
namespace {

template <typename T>
std::string ArrayOf(uint32_t type, const std::vector<T>& values) {
  std::string bytes = GgufBuilder::Raw(type) + GgufBuilder::Raw(static_cast<uint64_t>(values.size()));
  for (T value : values) bytes += GgufBuilder::Raw(value);
  return bytes;
}

std::unique_ptr<GgufFile> OpenOrDie(const GgufBuilder& builder) {
  auto file = GgufFile::Open(WriteTemporaryFile("test.gguf", builder.Bytes()));
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

TEST(GgufTest, ReadsValuesOfEveryType) {
  GgufBuilder builder;
  builder.Add("u8", 0, GgufBuilder::Raw(uint8_t{200})).Add("i8", 1, GgufBuilder::Raw(int8_t{-7}));
  builder.Add("u16", 2, GgufBuilder::Raw(uint16_t{65535})).Add("i16", 3, GgufBuilder::Raw(int16_t{-300}));
  builder.U32("u32", 4000000000u).Add("i32", 5, GgufBuilder::Raw(int32_t{-5}));
  builder.Add("u64", 10, GgufBuilder::Raw(uint64_t{1} << 40)).Add("i64", 11, GgufBuilder::Raw(int64_t{-1}));
  builder.Add("huge", 10, GgufBuilder::Raw(std::numeric_limits<uint64_t>::max()));
  builder.F32("f32", 0.5f).Add("f64", 12, GgufBuilder::Raw(0.25)).Add("bool", 7, std::string(1, '\1'));
  builder.String("text", "abc");
  builder.Add("ints", 9, ArrayOf<int16_t>(3, {1, -2})).Add("floats", 9, ArrayOf<float>(6, {1.5f}));
  builder.Add(
      "texts", 9,
      GgufBuilder::Raw(uint32_t{8}) + GgufBuilder::Raw(uint64_t{2}) + GgufBuilder::Text("x") + GgufBuilder::Text(""));
  const auto file = OpenOrDie(builder);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->GetInt("u8"), 200);
  EXPECT_EQ(*file->GetInt("i8"), -7);
  EXPECT_EQ(*file->GetInt("u16"), 65535);
  EXPECT_EQ(*file->GetInt("i16"), -300);
  EXPECT_EQ(*file->GetInt("u32"), 4000000000);
  EXPECT_EQ(*file->GetInt("i32"), -5);
  EXPECT_EQ(*file->GetInt("u64"), int64_t{1} << 40);
  EXPECT_EQ(*file->GetInt("i64"), -1);
  EXPECT_EQ(file->GetInt("huge").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*file->GetFloat("f32"), 0.5);
  EXPECT_EQ(*file->GetFloat("f64"), 0.25);
  EXPECT_TRUE(*file->GetBool("bool"));
  EXPECT_EQ(*file->GetString("text"), "abc");
  EXPECT_EQ(*file->GetIntArray("ints"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(*file->GetFloatArray("floats"), std::vector<double>{1.5});
  EXPECT_EQ(*file->GetStringArray("texts"), (std::vector<std::string_view>{"x", ""}));
  EXPECT_EQ(*file->ArrayLength("texts"), 2);
}

TEST(GgufTest, NamesKeyAndTypeOfAValueOfAnotherType) {
  GgufBuilder builder;
  builder.U32("some.key", 1);
  const auto file = OpenOrDie(builder);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->GetInt("absent").status().code(), absl::StatusCode::kNotFound);
  const absl::Status status = file->GetString("some.key").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("some.key"), absl::string_view::npos);
  EXPECT_NE(status.message().find("u32"), absl::string_view::npos);
  EXPECT_EQ(file->GetIntArray("some.key").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetFloat("some.key").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetBool("some.key").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GgufTest, PassesOverArraysInArrays) {
  GgufBuilder builder;
  const std::string inner = ArrayOf<uint8_t>(0, {1, 2, 3});
  builder.Add("nested", 9, GgufBuilder::Raw(uint32_t{9}) + GgufBuilder::Raw(uint64_t{2}) + inner + inner)
      .U32("after", 9);
  const auto file = OpenOrDie(builder);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->GetInt("after"), 9);
}

TEST(GgufTest, RefusesABoolThatIsNeitherTrueNorFalse) {
  GgufBuilder builder;
  builder.Add("flag", 7, std::string(1, '\2'));
  const auto file = GgufFile::Open(WriteTemporaryFile("test.gguf", builder.Bytes()));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GgufTest, EveryCutOfAFileIsRefused) {
  GgufBuilder builder;
  builder.String("general.name", "x").Add("ints", 9, ArrayOf<int16_t>(3, {1, -2})).Tensor("a", {4, 2}).Tensor("b", {8});
  const std::string bytes = builder.Bytes();
  ASSERT_TRUE(GgufFile::Open(WriteTemporaryFile("test.gguf", bytes)).ok());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(GgufFile::Open(WriteTemporaryFile("test.gguf", bytes.substr(0, length))).ok()) << length;
  }
}

}  // namespace
}  // namespace quire::testing
