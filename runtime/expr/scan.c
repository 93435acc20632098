/* Reading expressions: errors with their line and a caret, words and signs,
 * types, and the declarations in front ("T x, f32 a"). */
#include "scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors --- */

fl_value fli_bad(fli_parser *p, const char *at, const char *format, ...) {
  char text[400], mark[160];
  const char *line = p->text, *end;
  int number = 1, n = 0;
  va_list args;
  if (p->status)
    return fli_none();
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  for (const char *c = p->text; c < at; c++)
    if (*c == '\n') {
      line = c + 1;
      number++;
    }
  end = line + strcspn(line, "\n");
  if (at - line > 100) /* what is near is enough */
    line = at - 60;
  for (const char *c = line; c < at && n < (int)sizeof mark - 2; c++)
    mark[n++] = *c == '\t' ? '\t' : ' ';
  mark[n++] = '^';
  mark[n] = 0;
  char which[24] = "";
  if (strchr(p->text, '\n'))
    snprintf(which, sizeof which, "line %d: ", number);
  p->status = fli_fail(FL_EARG, "%s%s: %s%s\n  %.*s\n  %s", p->s->name,
                       p->s->where, which, text,
                       (int)(end - line < 120 ? end - line : 120), line, mark);
  p->t.kind = END;
  return fli_none();
}

/* What the graph refused, at this place. */
fl_value fli_refused(fli_parser *p, const char *at, fl_status s) {
  char text[400];
  snprintf(text, sizeof text, "%s", fl_error());
  fli_bad(p, at, "%s", text);
  if (p->status)
    p->status = s;
  return fli_none();
}

/* How many letters to change, up to 3. */
static int scan_distance(const char *a, int n, const char *b) {
  int m = (int)strlen(b), row[64];
  if (n > 60 || m > 60 || n - m > 2 || m - n > 2)
    return 3;
  for (int j = 0; j <= m; j++)
    row[j] = j;
  for (int i = 1; i <= n; i++) {
    int before = row[0];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int same = before + (a[i - 1] != b[j - 1]);
      before = row[j];
      int least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
      row[j] = same < least ? same : least;
    }
  }
  return row[m];
}

void fli_consider(fli_nearest *n, const char *name) {
  int d = scan_distance(n->word, n->len, name);
  if (d < n->best && d < n->len) {
    n->best = d;
    n->name = name;
  }
}

const char *fli_meant(const fli_nearest *n, char *room, size_t size) {
  *room = 0;
  if (n->name)
    snprintf(room, size, "; did you mean \"%s\"?", n->name);
  return room;
}

/* --- tokens --- */

const char *fli_skip_blanks(const char *s) {
  for (;; s++) {
    if (s[0] == '/' && s[1] == '/') {
      s += strcspn(s, "\n");
    } else if (s[0] == '/' && s[1] == '*') {
      const char *end = strstr(s + 2, "*/");
      s = end ? end + 1 : s + strlen(s) - 1;
      continue;
    }
    if (*s != ' ' && *s != '\n' && *s != '\t' && *s != '\r')
      return s;
  }
}

static const char *number_end(const char *s) {
  char *end;
  fli_strtod(s, &end);
  while (*end && strchr("fFuUlL", *end))
    end++;
  return end;
}

void fli_advance(fli_parser *p) {
  static const char *const pairs[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&",
                                      "||", "+=", "-=", "*=", "/=", "**"};
  const char *s = fli_skip_blanks(p->next);
  if (p->status)
    return;
  p->t = (fli_token){.at = s, .len = 1, .kind = SIGN};
  if (*s == 0) {
    p->t.kind = END;
    p->t.len = 0;
  } else if (fli_is_letter(*s)) {
    p->t.kind = WORD;
    while (fli_is_letter(s[p->t.len]) || fli_is_digit(s[p->t.len]))
      p->t.len++;
  } else if (fli_is_digit(*s) || (*s == '.' && fli_is_digit(s[1]))) {
    p->t.kind = NUMBER;
    p->t.len = (int)(number_end(s) - s);
  } else {
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
      if (s[0] == pairs[k][0] && s[1] == pairs[k][1])
        p->t.len = 2;
  }
  p->next = s + p->t.len;
}

bool fli_is(const fli_token *t, const char *s) {
  return t->kind != END && *s == *t->at &&
         strncmp(s, t->at, (size_t)t->len) == 0 && s[t->len] == 0;
}

bool fli_accept(fli_parser *p, const char *s) {
  if (p->status || !fli_is(&p->t, s))
    return false;
  fli_advance(p);
  return true;
}

/* What to write instead of operators of Lua. */
static const char *scan_hint(const fli_token *t) {
  static const char *const hints[][2] = {
      {"and", ": and is && here"},
      {"or", ": or is || here"},
      {"~", ": not equal is != here"},
      {"[", ": there are no positions, a kernel sees one element"}};
  for (size_t k = 0; k < sizeof hints / sizeof *hints; k++)
    if (fli_is(t, hints[k][0]))
      return hints[k][1];
  return "";
}

void fli_expect(fli_parser *p, const char *s) {
  if (fli_accept(p, s))
    return;
  fli_bad(p, p->t.at,
          p->t.kind == END ? "expected '%s' at the end"
                           : "expected '%s' before '%.*s'%s",
          s, p->t.len, p->t.at, scan_hint(&p->t));
}

fli_token fli_peek(const fli_parser *p) {
  fli_parser ahead;
  ahead.status = FL_OK;
  ahead.next = p->next;
  fli_advance(&ahead);
  return ahead.t;
}

bool fli_copy_word(char *to, size_t room, const fli_token *t) {
  if (t->kind != WORD || (size_t)t->len >= room)
    return false;
  memcpy(to, t->at, (size_t)t->len);
  to[t->len] = 0;
  return true;
}

/* --- types --- */

static const struct {
  const char *name;
  fl_dtype dtype;
} c_types[] = {{"double", FL_F64}, {"float", FL_F32}, {"half", FL_F16},
               {"long", FL_I64},   {"int", FL_I32},   {"short", FL_I16}};

fl_dtype fli_named_type(const fli_token *t) {
  FL_EACH_DTYPE(d, fl_dtype_is_real)
  if (fli_is(t, fl_dtype_name((fl_dtype)d)))
    return (fl_dtype)d;
  for (size_t k = 0; k < sizeof c_types / sizeof *c_types; k++)
    if (fli_is(t, c_types[k].name))
      return c_types[k].dtype;
  return FL_NODTYPE;
}

static bool is_letter_type(const fli_token *t) {
  return t->kind == WORD && t->at[0] >= 'A' && t->at[0] <= 'Z' && t->len < 8;
}

int fli_find_letter(const fli_parser *p, const fli_token *t) {
  for (int k = 0; k < p->n_types; k++)
    if (fli_is(t, p->types[k].name))
      return k;
  return -1;
}

fl_value fli_no_type(fli_parser *p, const fli_token *t) {
  fli_nearest n = {t->at, t->len, 3, NULL};
  char scan_hint[80];
  FL_EACH_DTYPE(d, fl_dtype_is_real)
  fli_consider(&n, fl_dtype_name((fl_dtype)d));
  for (size_t k = 0; k < sizeof c_types / sizeof *c_types; k++)
    fli_consider(&n, c_types[k].name);
  for (int k = 0; k < p->n_types; k++)
    fli_consider(&n, p->types[k].name);
  return fli_bad(
      p, t->at,
      "there is no type \"%.*s\"%s (a dtype, or a letter that an input "
      "has)",
      t->len, t->at, fli_meant(&n, scan_hint, sizeof scan_hint));
}

/* --- declarations --- */

fl_status fli_read_decls(const fli_source *s, const char *text,
                         const char *what, int room, fli_decl *d, int *n) {
  fli_parser parse, *p = &parse; /* the rest is not used */
  p->s = s;
  p->text = p->next = text;
  p->status = FL_OK;
  p->n_types = 0;
  *n = 0;
  for (fli_advance(p); p->status == FL_OK; fli_advance(p)) {
    fli_decl *one = &d[*n];
    fli_token type = p->t;
    if (*n == room)
      fli_bad(p, p->t.at, "more than %d %s", room, what);
    else if (type.kind != WORD)
      fli_bad(p, type.at, "expected a type and a name, as in \"T x, f32 a\"");
    else if (fli_named_type(&type) == FL_NODTYPE && !is_letter_type(&type))
      fli_no_type(p, &type);
    one->dtype = fli_named_type(&type);
    fli_copy_word(one->type, sizeof one->type, &type);
    fli_advance(p);
    if (!p->status && !fli_copy_word(one->name, sizeof one->name - 1, &p->t))
      fli_bad(p, p->t.at, "expected a name after the type %.*s", type.len,
              type.at);
    for (int k = 0; k < *n && !p->status; k++)
      if (strcmp(d[k].name, one->name) == 0)
        fli_bad(p, p->t.at, "%s is declared twice", one->name);
    fli_advance(p);
    if (p->status)
      break;
    ++*n;
    if (p->t.kind == END)
      return FL_OK;
    if (!fli_is(&p->t, ","))
      fli_bad(p, p->t.at, "expected ',' before '%.*s'", p->t.len, p->t.at);
  }
  return p->status;
}
