// The Orca table of block_manager/README.md. Fixed seeds: every run prints the same.

#include "absl/strings/str_format.h"
#include "tests/bench/orca_table.h"

int main() {
  bool all_met = true;
  for (const quire::OrcaGoals& goals : quire::kOrcaGoals) {
    const quire::OrcaTable table = quire::MakeOrcaTable(goals.dataset, goals.num_requests);
    absl::PrintF("%s\n", table.Text());
    for (const quire::OrcaFigure& figure : quire::CheckGoals(goals, table)) {
      absl::PrintF("%-8s %s\n", figure.met ? "met" : "MISSED", figure.text);
      all_met = all_met && figure.met;
    }
    absl::PrintF("\n");
  }
  absl::PrintF("%s\n", all_met ? "every goal met" : "NOT every goal met");
}
