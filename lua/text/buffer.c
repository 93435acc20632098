/* Text with the places in the original that its bytes stand for. */
#include "text.h"

static void buffer_room(lua_State *L, text_buffer *b, size_t more) {
  if (b->n + more > TEXT_MAX_BYTES)
    fll_error(L, "encode: the text is longer than 1 GiB");
  b->p = fll_text_grow(L, b->p, &b->room, b->n + more + 8, 1);
  if (b->moved)
    b->at = fll_text_grow(L, b->at, &b->at_room, b->n + more, sizeof *b->at);
}

void fll_text_clear(text_buffer *b, uint32_t base, bool moved) {
  b->n = 0;
  b->base = base;
  b->moved = moved;
}

void fll_text_append(lua_State *L, text_buffer *b, const char *p, uint32_t n,
                     text_span at) {
  buffer_room(L, b, n);
  memcpy(b->p + b->n, p, n);
  if (b->moved)
    for (uint32_t i = 0; i < n; i++)
      b->at[b->n + i] = at;
  b->n += n;
}

/* Without spans of its own, a byte stands for the character that has it. */
void fll_text_copy(lua_State *L, text_buffer *to, const text_buffer *from,
                   uint32_t first, uint32_t n) {
  buffer_room(L, to, n);
  if (n == 0)
    return;
  memcpy(to->p + to->n, from->p + first, n);
  if (to->moved && from->moved)
    memcpy(to->at + to->n, from->at + first, n * sizeof *to->at);
  else if (to->moved)
    for (uint32_t i = 0; i < n; i++)
      to->at[to->n + i] = fll_text_origin(from, first + i, first + i + 1);
  to->n += n;
}

void fll_text_swap(text_buffer *a, text_buffer *b) {
  text_buffer swapped = *a;
  *a = *b;
  *b = swapped;
}

text_span fll_text_origin(const text_buffer *b, uint32_t from, uint32_t to) {
  if (from >= to)
    to = from;
  if (b->moved)
    return from < to ? (text_span){b->at[from].from, b->at[to - 1].to}
                     : (text_span){0, 0};
  while (from > 0 && from < b->n && (b->p[from] & 0xc0) == 0x80)
    from--;
  while (to < b->n && (b->p[to] & 0xc0) == 0x80)
    to++;
  return (text_span){b->base + from, b->base + to};
}
