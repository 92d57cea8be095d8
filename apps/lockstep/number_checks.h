// Checks of flags that take numbers. Their texts say what is accepted and what was given, which CLI11's do
// not.
#pragma once

#include <CLI/CLI.hpp>

#include <limits>

/// A whole number of `min` to `max`.
CLI::Validator whole_number(int min, int max = std::numeric_limits<int>::max());

/// A time in seconds of `min` to `max`.
CLI::Validator number_of_seconds(double min, double max = 1e6);
