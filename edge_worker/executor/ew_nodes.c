// The nodes of a slice, and where each kind of them stands.
#include "edge_worker/executor/ew_executor_parts.h"

uint64_t ew_nodes_of(const rt_wire_slice *c)
{
    return (uint64_t)c->push_count + c->drop_count + c->pull_count + c->init_count + c->row_count +
           c->grad_count + c->delta_count + c->sum_count;
}

static ew_node *add_node(ew_slice_state *s, ew_node_kind kind, uint32_t slot, uint32_t index)
{
    rt_assert(s->node_count < s->node_capacity);
    ew_node *n = &s->nodes[s->node_count++];
    *n = (ew_node){.kind = (uint8_t)kind, .slot = slot, .index = index, .slice = s->index};
    return n;
}

static void add_fills(ew_slice_state *s)
{
    const dp_slice_view *v = &s->view;
    for (uint32_t i = 0; i < v->counts.pull_count; i++) {
        ew_node *n = add_node(s, NODE_PULL, v->pull_slots[i], i);
        n->key = v->pull_keys[i];
        n->version = v->pull_versions[i];
        n->flags = v->pull_flags[i];
    }
    for (uint32_t i = 0; i < v->counts.init_count; i++)
        add_node(s, NODE_INIT, v->init_slots[i], i)->key = v->init_keys[i];
}

static void add_deltas(ew_slice_state *s, uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i++)
        add_node(s, NODE_PUSH_DELTA, s->view.delta_slots[i], i)->version = s->view.delta_held[i];
}

// The order is that of the protocol: of two operations on one slot the earlier one goes first.
void ew_nodes_add(ew_slice_state *s)
{
    const dp_slice_view *v = &s->view;
    const rt_wire_slice *c = &v->counts;
    const uint32_t early = c->push_count - c->push_late;
    s->node_count = 0;
    for (uint32_t i = 0; i < early; i++)
        add_node(s, NODE_PUSH_ROW, v->push_slots[i], i)->version = v->push_versions[i];
    for (uint32_t i = 0; i < c->drop_count; i++)
        add_node(s, NODE_DROP, v->drop_slots[i], i);
    add_deltas(s, 0, c->delta_count - c->delta_late);
    add_fills(s);
    for (uint32_t i = early; i < c->push_count; i++)
        add_node(s, NODE_PUSH_ROW, v->push_slots[i], i)->version = v->push_versions[i];
    for (uint32_t i = 0; i < c->row_count; i++)
        add_node(s, NODE_TRAIN, v->row_slots[i], i)->version = v->row_versions[i];
    for (uint32_t i = 0; i < c->grad_count; i++)
        add_node(s, NODE_PUSH_GRAD, v->row_slots[v->grad_rows[i]], i);
    for (uint32_t i = 0; i < c->sum_count; i++)
        add_node(s, NODE_SUM, v->row_slots[v->sum_rows[i]], i)->version = c->iteration;
    add_deltas(s, c->delta_count - c->delta_late, c->delta_count);
    rt_assert(s->node_count == ew_nodes_of(c));
}

uint32_t ew_first_pull_node(const rt_wire_slice *c)
{
    return c->push_count - c->push_late + c->drop_count + (c->delta_count - c->delta_late);
}

uint32_t ew_first_train_node(const rt_wire_slice *c)
{
    return ew_first_pull_node(c) + c->pull_count + c->init_count + c->push_late;
}

uint32_t ew_first_sum_node(const rt_wire_slice *c)
{
    return ew_first_train_node(c) + c->row_count + c->grad_count;
}
