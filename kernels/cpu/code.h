/* An assembler for vector loops on x86-64: memory for code, and the encodings
 * of the instructions that tile_code.c uses. Vectors are those of the
 * instruction set that the file is compiled for: 16 floats with AVX-512, 8 with
 * AVX2; FL_CODE_LANES is 0 where there is no assembler. */
#ifndef FL_CPU_CODE_H
#define FL_CPU_CODE_H

#include "cpu.h"

#if defined __x86_64__ && defined __AVX512F__ && defined __linux__
#define FL_CODE_LANES     16
#define FL_CODE_REGISTERS 32
#elif defined __x86_64__ && defined __AVX2__ && defined __linux__
#define FL_CODE_LANES     8
#define FL_CODE_REGISTERS 15 /* the last one has the mask */
#else
#define FL_CODE_LANES     0
#define FL_CODE_REGISTERS 1
#endif

/* Memory that is written first and can then only be run and read. */
typedef struct fl_code {
  unsigned char *at; /* NULL: there is none */
  size_t n, room;
  bool full;
} fl_code;

/* `at` is NULL if the system has none, or FLARE_CPU_CODE is "off". */
fl_code FL_CPU(code_open)(void);
/* Makes what has been written executable; false: the system forbids it. */
bool FL_CPU(code_seal)(fl_code *c);
void FL_CPU(code_close)(fl_code *c);

/* --- general registers: those without a use by convention --- */

enum {                 /* numbers of the processor */
       FL_CODE_INDEX,  /* rax: of an element */
       FL_CODE_MOVES,  /* rcx: bytes from row to row of each operand */
       FL_CODE_PLACES, /* rdx: where the rows begin */
       FL_CODE_SPARE,  /* rbx */
       FL_CODE_STACK,
       FL_CODE_FREE,  /* rbp, the first of those for pointers to rows; then r8
                         ... */
       FL_CODE_COUNT, /* rsi: elements of a row */
       FL_CODE_ROWS   /* rdi: rows left */
};
#define FL_CODE_POINTERS 8 /* r8 ... r15 */

void FL_CPU(code_byte)(fl_code *c, int byte);
void FL_CPU(code_word)(fl_code *c, int32_t word);
/* Where a word of 4 bytes was left for the distance from its end to here. */
void FL_CPU(code_here)(fl_code *c, size_t word);
/* An instruction of 64-bit registers: `reg` and `rm`, or memory at `base` +
 * `disp`. */
void FL_CPU(code_whole)(fl_code *c, int op, int reg, int rm);
void FL_CPU(code_at)(fl_code *c, int op, int reg, int base, int32_t disp);

/* --- vectors --- */

/* Opcodes: prefix (0 none, 1 66, 2 F3, 3 F2), map (1 0F, 2 0F38, 3 0F3A). */
#define FL_CODE_OP(prefix, map, op) ((prefix) << 12 | (map) << 8 | (op))
enum {
  FL_CODE_LOAD = FL_CODE_OP(0, 1, 0x10),
  FL_CODE_STORE = FL_CODE_OP(0, 1, 0x11),
  FL_CODE_COPY = FL_CODE_OP(0, 1, 0x28),
  FL_CODE_SQRT = FL_CODE_OP(0, 1, 0x51),
  FL_CODE_AND = FL_CODE_OP(0, 1, 0x54),
  FL_CODE_OR = FL_CODE_OP(0, 1, 0x56),
  FL_CODE_XOR = FL_CODE_OP(0, 1, 0x57),
  FL_CODE_ADD = FL_CODE_OP(0, 1, 0x58),
  FL_CODE_MUL = FL_CODE_OP(0, 1, 0x59),
  FL_CODE_SUB = FL_CODE_OP(0, 1, 0x5C),
  FL_CODE_MIN = FL_CODE_OP(0, 1, 0x5D), /* b if one is NaN */
  FL_CODE_DIV = FL_CODE_OP(0, 1, 0x5E),
  FL_CODE_MAX = FL_CODE_OP(0, 1, 0x5F),
  FL_CODE_SPREAD = FL_CODE_OP(1, 2, 0x18),
  FL_CODE_FMA = FL_CODE_OP(1, 2, 0xB8),  /* to + a b */
  FL_CODE_FNMA = FL_CODE_OP(1, 2, 0xBC), /* to - a b */
  FL_CODE_OVER = 0x10, /* less than those: a to + b, b - a to */
  /* AVX-512 alone: a 2^b for whole b, the exponent, the fraction in [1, 2) */
  FL_CODE_SCALE = FL_CODE_OP(1, 2, 0x2C),
  FL_CODE_EXPONENT = FL_CODE_OP(1, 2, 0x42),
  FL_CODE_FRACTION = FL_CODE_OP(1, 3, 0x26),
  FL_CODE_MASKED_LOAD = FL_CODE_OP(1, 2, 0x2C), /* AVX2 alone */
  FL_CODE_MASKED_STORE = FL_CODE_OP(1, 2, 0x2E)
};

/* to = a op b; a is 0 where there is one operand. The fraction of what is less
 * than 0 is NaN. */
void FL_CPU(code_vector)(fl_code *c, int op, int to, int a, int b);
/* The same with memory at base + 4 * rax and `disp` vectors more, 3 at most, or
 * at base + disp if `index` is false; `masked`: only the elements of the mask,
 * zeros elsewhere. */
void FL_CPU(code_memory)(fl_code *c, int op, int to, int a, int base,
                         bool index, int32_t disp, bool masked);
/* to = a, or b where `sign` is negative. AVX-512 alone. */
void FL_CPU(code_select)(fl_code *c, int to, int sign, int a, int b);
/* Takes the mask of a row's last elements from general register `from`: bits,
 * or with AVX2 the address of words. */
void FL_CPU(code_mask)(fl_code *c, int from);

#endif
