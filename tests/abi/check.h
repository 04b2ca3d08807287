/* The smallest test harness: in C, since a C caller is what is tested. */
#ifndef BITEXACT_TESTS_ABI_CHECK_H_
#define BITEXACT_TESTS_ABI_CHECK_H_

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int check_failures = 0;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      ++check_failures;                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                           \
  } while (0)

#define CHECK_EQUAL(actual, expected)                                                                \
  do {                                                                                               \
    const int64_t check_actual = (int64_t)(actual), check_expected = (int64_t)(expected);            \
    if (check_actual != check_expected) {                                                            \
      ++check_failures;                                                                              \
      fprintf(stderr, "%s:%d: %s is %" PRId64 ", expected %" PRId64 " (last error: %s)\n", __FILE__, \
              __LINE__, #actual, check_actual, check_expected, bitexact_last_error());               \
    }                                                                                                \
  } while (0)

#define CHECK_RESULT() (check_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE)

#endif
