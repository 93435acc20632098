/* What public functions do with NULL and with numbers out of range. A call that
 * ends by a signal is one failure with its text, and the program goes on. */
#ifndef FL_SPEC_BAD_ARGUMENTS_H
#define FL_SPEC_BAD_ARGUMENTS_H

#include "check.h"

#include <flare/flare.h>

#include <setjmp.h>
#include <signal.h>
#include <string.h>

static sigjmp_buf before_call;

static void on_signal(int number) {
  siglongjmp(before_call, number);
}

static void catch_signals(void) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
    sigaction(numbers[k], &action, NULL);
}

/* Runs a call; it is a failure with the text if a signal ends it. */
#define GUARDED(text, ...)                                                     \
  do {                                                                         \
    int number_ = sigsetjmp(before_call, 1);                                   \
    if (number_ == 0) {                                                        \
      __VA_ARGS__;                                                             \
    } else                                                                     \
      CHECK(false, "%s: signal %d", text, number_);                            \
  } while (0)

/* FL_EARG, and "fl_tensor_new: rt is NULL". */
static void check_refusal(fl_status s, const char *call, const char *what) {
  char want[128];
  snprintf(want, sizeof want, "%.*s: %s is NULL", (int)strcspn(call, "("), call,
           what);
  CHECK(s == FL_EARG, "%s: %s", call, fl_status_name(s));
  CHECK(strcmp(fl_error(), want) == 0, "%s: \"%s\", not \"%s\"", call,
        fl_error(), want);
}

static void check_status(fl_status got, fl_status want, const char *call) {
  CHECK(got == want, "%s: %s, not %s (%s)", call, fl_status_name(got),
        fl_status_name(want), fl_error());
}

#define NEEDS(call, what) GUARDED(#call, check_refusal(call, #call, what))
/* The status of a bad number, a closed tensor. */
#define REFUSES(call, status) GUARDED(#call, check_status(call, status, #call))
/* NULL is allowed. */
#define TAKES(call) REFUSES(call, FL_OK)
/* Without a status: nothing happens. */
#define IGNORES(call) GUARDED(#call, call)
/* The same, with what it returns. */
#define GIVES(call, value)                                                     \
  GUARDED(#call, CHECK((call) == (value), "%s is not %s", #call, #value))

#endif
