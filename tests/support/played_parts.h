// played_parts - inside played: what a worker or a shard answers.
#ifndef PLAYED_PARTS_H
#define PLAYED_PARTS_H

#include "dispatch/plan/dp_slice_wire.h"
#include "tests/support/played.h"

// The one that played_ops is about.
const played *played_stage(void);

// What the peer has to say to a message, and what it changes in what it has.
void played_answer(played *p, uint32_t peer, const rt_message *message);

// ---- played_rows.c: which rows there are

// A slice is carried out by a worker: what it pushes is at its shards.
void played_carry_out(played *p, uint32_t rank, const rt_message *message, rt_wire_slice *counts);
// Every key once, in order.
void played_sort(played_rows *rows);
// What a checkpoint has, and a shard that read it.
void played_keep(played *p, uint32_t iteration);
void played_load(played *p, uint32_t iteration);
// Rows that end; those of one shard.
uint64_t played_expire(played *p, uint32_t shard, uint32_t floor, const uint64_t *keys,
                       uint32_t count);
bool played_is_at(const played *p, const played_row *row, uint32_t shard);

#endif
