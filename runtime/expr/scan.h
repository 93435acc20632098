/* The text of expressions as scan.c reads it: words, types, declarations
 * and errors with a caret. What is made of it is in parse.c. */
#ifndef FL_EXPR_SCAN_H
#define FL_EXPR_SCAN_H

#include "expr.h"

#define FLI_EXPR_VARS 64

typedef enum fli_token_kind { END, WORD, NUMBER, SIGN } fli_token_kind;

typedef struct fli_token {
  fli_token_kind kind;
  const char *at;
  int len;
} fli_token;

typedef struct fli_variable {
  char name[32];
  char type[8];   /* as declared; "" of an `auto` */
  fl_dtype dtype; /* of `type`, FL_NODTYPE: whatever comes */
  enum { INPUT, OUTPUT, LOCAL } kind;
  bool set;
  fl_value value;
} fli_variable;

typedef struct fli_parser {
  const fli_source *s;
  const char *text; /* what is read: the body, or a declaration */
  const char *next; /* behind `t` */
  fli_token t;
  fl_status status;
  int depth;  /* of what is inside something */
  bool typed; /* dtypes are known */
  fli_graph *g;
  int n_vars, n_types;
  fli_variable vars[FLI_EXPR_VARS];
  struct {
    char name[8];
    fl_dtype dtype;
  } types[FLI_EXPR_VARS]; /* letters that inputs have */
} fli_parser;

typedef struct fli_nearest {
  const char *word;
  int len, best;
  const char *name;
} fli_nearest;

/* Fails with the line of `at` and a caret; then nothing more is read. */
fl_value fli_bad(fli_parser *p, const char *at, const char *format, ...)
    FL_PRINTF(3, 4);
/* Fails there with the graph's message. */
fl_value fli_refused(fli_parser *p, const char *at, fl_status s);
void fli_consider(fli_nearest *n, const char *name);
/* "; did you mean ...?" or nothing. */
const char *fli_meant(const fli_nearest *n, char *room, size_t size);

const char *fli_skip_blanks(const char *s);
void fli_advance(fli_parser *p);
bool fli_is(const fli_token *t, const char *s);
bool fli_accept(fli_parser *p, const char *s);
void fli_expect(fli_parser *p, const char *s);
fli_token fli_peek(const fli_parser *p);
bool fli_copy_word(char *to, size_t room, const fli_token *t);
static inline bool fli_is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static inline bool fli_is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* A dtype's name or C's; FL_NODTYPE: neither. */
fl_dtype fli_named_type(const fli_token *t);
int fli_find_letter(const fli_parser *p, const fli_token *t);
fl_value fli_no_type(fli_parser *p, const fli_token *t);

#endif
