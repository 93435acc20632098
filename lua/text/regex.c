/* Regular expressions by PCRE2, compiled to machine code where it can. */
#include "text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

/* Backtracking that a match may need: a pattern from a file that asks for more
 * is an error, not endless work. */
#define MAX_STEPS 5000000
#define MAX_STACK (4 << 20)

struct text_regex {
  pcre2_code *code;
  pcre2_match_data *match;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

void fll_text_regex_free(text_regex *r) {
  pcre2_code_free(r->code);
  pcre2_match_data_free(r->match);
  pcre2_match_context_free(r->context);
  pcre2_jit_stack_free(r->stack);
  free(r);
}

text_regex *fll_text_regex_new(lua_State *L, const char *pattern, size_t n) {
  int error;
  size_t at;
  char said[120];
  text_regex *r = calloc(1, sizeof *r);
  if (!r)
    luaL_error(L, "out of memory: a pattern");
  r->code = pcre2_compile((PCRE2_SPTR)pattern, n,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                              PCRE2_NEVER_BACKSLASH_C,
                          &error, &at, NULL);
  if (!r->code) {
    pcre2_get_error_message(error, (PCRE2_UCHAR *)said, sizeof said);
    fll_text_regex_free(r);
    fll_error(L, "a pattern is wrong at byte %d: %s: %s", (int)at + 1, said,
              lua_pushlstring(L, pattern, n < 200 ? n : 200));
  }
  r->match = pcre2_match_data_create(1, NULL);
  r->context = pcre2_match_context_create(NULL);
  if (!r->match || !r->context) {
    fll_text_regex_free(r);
    luaL_error(L, "out of memory: a pattern");
  }
  pcre2_set_match_limit(r->context, MAX_STEPS);
  if (pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0) {
    r->stack = pcre2_jit_stack_create(32 << 10, MAX_STACK, NULL);
    pcre2_jit_stack_assign(r->context, NULL, r->stack);
  }
  return r;
}

bool fll_text_regex_find(lua_State *L, text_regex *r, const char *p, uint32_t n,
                         uint32_t from, text_span *match) {
  char said[120];
  int got = pcre2_match(r->code, (PCRE2_SPTR)p, n, from, PCRE2_NO_UTF_CHECK,
                        r->match, r->context);
  if (got == PCRE2_ERROR_NOMATCH)
    return false;
  if (got < 0) {
    pcre2_get_error_message(got, (PCRE2_UCHAR *)said, sizeof said);
    fll_error(L, "encode: a pattern of the tokenizer gives up: %s", said);
  }
  size_t *ends = pcre2_get_ovector_pointer(r->match);
  *match = (text_span){(uint32_t)ends[0], (uint32_t)ends[1]};
  if (match->from < from || match->to < match->from) /* by \K */
    fll_error(L, "encode: a pattern of the tokenizer moves backwards");
  return true;
}
