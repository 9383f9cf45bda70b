#include <gtest/gtest.h>

#include "model/chat/template.h"

// Nothing that a template can say makes a rendering run away.
namespace quire::jinja {
namespace {

absl::Status RenderStatus(std::string_view text, const Limits& limits = {}) {
  const auto compiled = Template::Compile(text, limits);
  if (!compiled.ok()) return compiled.status();
  return compiled->Render(nlohmann::ordered_json::object(), absl::CivilSecond(2026, 1, 1)).status();
}

void ExpectNames(const absl::Status& status, std::string_view what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find(what), std::string::npos) << status;
}

TEST(LimitsTest, StepsAreBounded) {
  Limits limits;
  limits.max_steps = 100'000;
  ExpectNames(RenderStatus("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", limits),
              "max_steps");
  ExpectNames(RenderStatus("{{ ([0] * 99999) | sum if [0] * 99999999999 }}", limits), "max_steps");
  ExpectNames(RenderStatus("{{ [1] | slice(9999999999) | list }}", limits), "max_steps");
  ExpectNames(RenderStatus("{{ [1] | batch(9999999999, 0) | list }}", limits), "max_steps");
  // Each doubles what printing has to visit.
  ExpectNames(RenderStatus("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor "
                           "%}{{ n.x | length }}{{ n.x == [n.x[0], n.x[1]] }}{{ n.x | tojson }}",
                           limits),
              "max_");
}

TEST(LimitsTest, DepthIsBounded) {
  ExpectNames(RenderStatus("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"), "max_depth");
  ExpectNames(RenderStatus("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"),
              "levels");
  ExpectNames(RenderStatus("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), "max_depth");
  ExpectNames(RenderStatus("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "levels");
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  ExpectNames(RenderStatus(chain + " }}"), "levels");
}

TEST(LimitsTest, TextIsBounded) {
  ExpectNames(RenderStatus("{{ 'x' * 99999999999 }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{{ 'x' | center(99999999999) }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{{ '%99999999999d' % 1 }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{{ '%.99999999999f' % 1 }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{{ '{:99999999999}'.format(1) }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{{ 'x\ny' | indent(99999999999) }}"), "max_output_bytes");
  ExpectNames(RenderStatus("{% set n = namespace(x='x' * 9999) %}{% for i in range(40) %}{% set n.x = n.x.replace('x', "
                           "n.x) %}{% endfor %}"),
              "max_output_bytes");
  Limits limits;
  limits.max_output_bytes = 100;
  ExpectNames(RenderStatus("{% for i in range(101) %}x{% endfor %}", limits), "max_output_bytes");
  EXPECT_TRUE(RenderStatus("{% for i in range(100) %}x{% endfor %}", limits).ok());
}

TEST(LimitsTest, SourceIsBounded) {
  Limits limits;
  limits.max_template_bytes = 10;
  ExpectNames(RenderStatus("12345678901", limits), "max_template_bytes");
  ExpectNames(RenderStatus("\xff"), "UTF-8");
}

TEST(LimitsTest, IntegersOverflowWithAnError) {
  ExpectNames(RenderStatus("{{ 2 ** 200 }}"), "127 bits");
  ExpectNames(RenderStatus("{{ 2 ** 126 * 4 }}"), "127 bits");
  ExpectNames(RenderStatus("{{ 999999999999999999999999999999999999999999 }}"), "127 bits");
  EXPECT_TRUE(RenderStatus("{{ 2 ** 126 }}").ok());
}

}  // namespace
}  // namespace quire::jinja
