#pragma once

#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"

namespace quire {

// A row-major matrix somewhere in memory, not owned: `rows` x `cols` elements of T, consecutive rows `stride` elements
// apart (stride >= cols; elements of a row are contiguous). Empty matrices (rows 0) are legal everywhere.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in) : MatrixView(data_in, rows_in, cols_in, cols_in) {}
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in, int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
  // A view of constants from a view of variables.
  template <typename U>
  requires(!__is_same(T, U) && __is_same(T, const U))
      MatrixView(const MatrixView<U>& other)  // NOLINT: implicit on purpose
      : data(other.data), rows(other.rows), cols(other.cols), stride(other.stride) {}

  T* row(int64_t index) const { return data + index * stride; }
  // Rows [begin, begin + count).
  MatrixView slice_rows(int64_t begin, int64_t count) const { return {row(begin), count, cols, stride}; }
  // Columns [begin, begin + count) of all rows.
  MatrixView slice_cols(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
};

using F32Matrix = MatrixView<float>;
using ConstF32Matrix = MatrixView<const float>;

// The same with the element type as a value: what the ops take, since a backend chooses the type of its activations
// (f32 on cpu and reference). `data` is in the backend's memory. sizes and stride in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  TensorView() = default;
  TensorView(void* data_in, DType dtype_in, int64_t rows_in, int64_t cols_in, int64_t stride_in)
      : data(data_in), dtype(dtype_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
  TensorView(F32Matrix m)  // NOLINT: implicit on purpose
      : TensorView(m.data, DType::kF32, m.rows, m.cols, m.stride) {}

  // The typed view. REQUIRES: dtype is kF32.
  F32Matrix f32() const {
    QUIRE_CHECK(dtype == DType::kF32);
    return {static_cast<float*>(data), rows, cols, stride};
  }
  TensorView slice_rows(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + begin * stride * SizeOf(dtype), dtype, count, cols, stride};
  }
  TensorView slice_cols(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + begin * SizeOf(dtype), dtype, rows, count, stride};
  }
};

}  // namespace quire
