#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/orca_simulation.h"

// The figures that the paged block manager is held to, beside contiguous reservation.
namespace quire {

struct OrcaTable {
  std::string dataset;
  int num_requests = 0;
  OrcaResult max, power_of_two, oracle, paged;

  // Markdown.
  std::string Text() const;
};

struct OrcaGoals {
  const char* dataset;
  int num_requests;
  std::optional<double> max_waste;  // of the paged pool; nothing: what block size and mean length imply, + 1 point
  double least_over_oracle, least_over_max;  // running sequences
};

// Waste below 4 %, 2.2x and 4.3x are the paper's ShareGPT figures. Short requests waste more of their last blocks.
inline constexpr OrcaGoals kOrcaGoals[] = {{"sharegpt-like", 4'000, 0.04, 2.2, 4.3},
                                           {"alpaca-like", 40'000, std::nullopt, 1.5, 10}};

struct OrcaFigure {
  bool met = false;
  std::string text;  // figure and goal
};

// The four policies on one trace (seed 0) of `num_requests` requests of `dataset`, a name of cli::MakeDataset.
OrcaTable MakeOrcaTable(const char* dataset, int num_requests);

std::vector<OrcaFigure> CheckGoals(const OrcaGoals& goals, const OrcaTable& table);

}  // namespace quire
