/* The assembler of code.h: encodings by Intel's manual, volume 2, "VEX" and
 * "EVEX". */
#include "code.h"

#if FL_CODE_LANES
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM  (1 << 18) /* of address space; pages count once written */
#define LEAST 64        /* bytes that an instruction never needs */

fl_code FL_CPU(code_open)(void) {
  const char *said = getenv("FLARE_CPU_CODE");
  if (said && strcmp(said, "off") == 0)
    return (fl_code){.at = NULL};
  void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return (fl_code){.at = at == MAP_FAILED ? NULL : at, .room = ROOM};
}

void FL_CPU(code_close)(fl_code *c) {
  if (c->at)
    munmap(c->at, c->room);
  c->at = NULL;
}

bool FL_CPU(code_seal)(fl_code *c) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE),
         used = (c->n + page - 1) / page * page;
  if (c->full || !c->n || mprotect(c->at, used, PROT_READ | PROT_EXEC)) {
    FL_CPU(code_close)(c);
    return false;
  }
  munmap(c->at + used, c->room - used);
  c->room = used;
  return true;
}

void FL_CPU(code_byte)(fl_code *c, int byte) {
  c->full = c->full || c->n + LEAST > c->room;
  if (!c->full)
    c->at[c->n++] = (unsigned char)byte;
}

void FL_CPU(code_word)(fl_code *c, int32_t word) {
  for (int k = 0; k < 4; k++)
    FL_CPU(code_byte)(c, (int)((uint32_t)word >> (8 * k) & 255));
}

void FL_CPU(code_here)(fl_code *c, size_t word) {
  int32_t far = (int32_t)(c->n - word - 4);
  if (!c->full)
    memcpy(c->at + word, &far, sizeof far);
}

static void put_modes(fl_code *c, int mode, int reg, int rm) {
  FL_CPU(code_byte)(c, mode << 6 | (reg & 7) << 3 | (rm & 7));
}

void FL_CPU(code_whole)(fl_code *c, int op, int reg, int rm) {
  FL_CPU(code_byte)(c, 0x48 | reg >> 3 << 2 | rm >> 3);
  FL_CPU(code_byte)(c, op);
  put_modes(c, 3, reg, rm);
}

void FL_CPU(code_at)(fl_code *c, int op, int reg, int base, int32_t disp) {
  FL_CPU(code_byte)(c, 0x48 | reg >> 3 << 2 | base >> 3);
  FL_CPU(code_byte)(c, op);
  put_modes(c, 2, reg, base);
  FL_CPU(code_word)(c, disp);
}

/* The prefix of a vector instruction; x: bit 3 of an index, or bit 4 of a
 * vector register; mask: with AVX-512, its register and ZEROS. */
#define ZEROS 0x80
static void put_prefix(fl_code *c, int op, int reg, int a, int x, int b,
                       int mask) {
  int pp = op >> 12, map = op >> 8 & 15;
#ifdef __AVX512F__
  FL_CPU(code_byte)(c, 0x62);
  FL_CPU(code_byte)
  (c, (~reg & 8) << 4 | (x ? 0 : 0x40) | (~b & 8) << 2 | (~reg & 16) | map);
  FL_CPU(code_byte)(c, (~a & 15) << 3 | 4 | pp);
  FL_CPU(code_byte)
  (c, mask | 0x40 | (~a & 16) >> 1);
#else
  (void)mask;
  FL_CPU(code_byte)(c, 0xC4);
  FL_CPU(code_byte)
  (c, (~reg & 8) << 4 | (x ? 0 : 0x40) | (~b & 8) << 2 | map);
  FL_CPU(code_byte)(c, (~a & 15) << 3 | 4 | pp);
#endif
  FL_CPU(code_byte)(c, op & 255);
}

void FL_CPU(code_vector)(fl_code *c, int op, int to, int a, int b) {
  put_prefix(c, op, to, a, b & 16, b, 0);
  put_modes(c, 3, to, b);
  if (op == FL_CODE_FRACTION)
    FL_CPU(code_byte)(c, 2 << 2);
}

void FL_CPU(code_select)(fl_code *c, int to, int sign, int a, int b) {
  static const int signs = FL_CODE_OP(2, 2, 0x39), /* of words, to a mask */
      blend = FL_CODE_OP(1, 2, 0x65);
  put_prefix(c, signs, 2, 0, sign & 16, sign, 0);
  put_modes(c, 3, 2, sign);
  put_prefix(c, blend, to, a, b & 16, b, 2);
  put_modes(c, 3, to, b);
}

void FL_CPU(code_memory)(fl_code *c, int op, int to, int a, int base,
                         bool index, int32_t disp, bool masked) {
#ifndef __AVX512F__
  if (masked) {
    op = op == FL_CODE_STORE ? FL_CODE_MASKED_STORE : FL_CODE_MASKED_LOAD;
    a = FL_CODE_REGISTERS;
  }
#endif
  put_prefix(c, op, to, a, 0, base,
             !masked               ? 0
             : op == FL_CODE_STORE ? 1
                                   : 1 | ZEROS);
  put_modes(c, index ? 1 : 2, to, 4); /* a byte of index and base follows */
  FL_CPU(code_byte)
  (c, (index ? 2 << 6 | FL_CODE_INDEX << 3 : 4 << 3) | (base & 7));
  if (index) /* EVEX counts in vectors */
    FL_CPU(code_byte)(c, FL_CODE_REGISTERS > 16 ? disp : 32 * disp);
  else
    FL_CPU(code_word)(c, disp);
}

void FL_CPU(code_mask)(fl_code *c, int from) {
#ifdef __AVX512F__
  static const int bytes[] = {0xC5, 0xF8, 0x92}; /* kmovw k1, from */
  (void)from;
  for (int k = 0; k < 3; k++)
    FL_CPU(code_byte)(c, bytes[k]);
  put_modes(c, 3, 1, from);
#else
  FL_CPU(code_memory)
  (c, FL_CODE_LOAD, FL_CODE_REGISTERS, 0, from, false, 0, false);
#endif
}

#else /* no code is ever made */
fl_code FL_CPU(code_open)(void) {
  return (fl_code){.at = NULL};
}
bool FL_CPU(code_seal)(fl_code *c) {
  (void)c;
  return false;
}
void FL_CPU(code_close)(fl_code *c) {
  (void)c;
}
#endif
