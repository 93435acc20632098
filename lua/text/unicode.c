/* Characters: UTF-8, and the classes of characters that tokenizers ask for. */
#include "text.h"

#include <utf8proc.h>

uint32_t fll_text_put(char *p, text_char c) {
  return (uint32_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)p);
}

uint32_t fll_text_valid(const unsigned char *s, size_t n, uint32_t *skip) {
  unsigned low = 0x80, high = 0xbf;
  uint32_t length = s[0] < 0x80   ? 1
                    : s[0] < 0xc2 ? 0
                    : s[0] < 0xe0 ? 2
                    : s[0] < 0xf0 ? 3
                    : s[0] < 0xf5 ? 4
                                  : 0;
  *skip = 1;
  if (s[0] == 0xe0)
    low = 0xa0; /* overlong below */
  else if (s[0] == 0xed)
    high = 0x9f; /* surrogates above */
  else if (s[0] == 0xf0)
    low = 0x90;
  else if (s[0] == 0xf4)
    high = 0x8f;
  for (uint32_t i = 1; i < length; i++) {
    if (i >= n || s[i] < low || s[i] > high) {
      *skip = i;
      return 0;
    }
    low = 0x80, high = 0xbf;
  }
  return length;
}

bool fll_text_is_space(text_char c) { /* White_Space */
  if (c < 0x80)
    return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool fll_text_is_punctuation(text_char c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) ||
           (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  utf8proc_category_t k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool fll_text_is_numeric(text_char c) {
  if (c < 0x80)
    return c >= '0' && c <= '9';
  utf8proc_category_t k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

/* \w of UTS 18: letters, marks, digits, letter numbers, connectors, joiners,
 * and the circled letters, which are alphabetic symbols. */
bool fll_text_is_word(text_char c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || c == '_' ||
           ((c | 32) >= 'a' && (c | 32) <= 'z');
  utf8proc_category_t k = utf8proc_category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) ||
         k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d ||
         (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* Printable bytes stand for themselves, the 68 others for U+0100 and on. */
text_char fll_text_byte_char(unsigned char b) {
  if ((b >= 33 && b <= 126) || (b >= 161 && b != 173))
    return b;
  if (b <= 32)
    return 256 + b;
  return b == 173 ? 323 : 256 + b - 94;
}

int fll_text_char_byte(text_char c) {
  if (c >= 256)
    return c <= 288   ? c - 256
           : c == 323 ? 173
           : c < 323  ? c - 256 + 94
                      : TEXT_NONE;
  return (c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173)
             ? c
             : TEXT_NONE;
}
