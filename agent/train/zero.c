#include "agent/train/zero.h"

#include <stdlib.h>

#include "agent/train/powersgd.h"

/* Blocks' buffers of parameters, of gradients. A block's gradients are opened while the next one's
 * are summed. */
enum { PARAM_TURNS = 2, GRAD_TURNS = 3 };

/* The stream of collectives, and what it and the model's have to wait for. */
struct zero_traffic {
    struct kstream *ks;
    struct kevent *computed; /* on the model's stream */
    struct kevent *settled;  /* on this one */
    struct kevent **ready;   /* a group's parameters have come */
    struct kevent **summed;  /* its gradients have */
    int holder[GRAD_TURNS];  /* whose gradients lie, or lay, in each of the blocks' buffers */
};

static int ranks_of(const struct model *m)
{
    return m->own.ranks;
}

/* Whether gradients are summed over the ranks after each pass, not once a step. */
static bool sums_each_pass(const struct model *m)
{
    return ranks_of(m) > 1 &&
           (m->o.zero >= 2 || (m->o.ordered && m->o.passes > 1 && m->powersgd == NULL));
}

static int64_t largest_group(const struct layout *l, int from, int end)
{
    int64_t most = 0;

    for (int g = from; g < end; g++) {
        most = l->group[g].size > most ? l->group[g].size : most;
    }
    return most;
}

static bool is_block(const struct layout *l, int group)
{
    return group > 0 && group < l->groups - 1;
}

/* Where a group's buffer begins, and how many elements all of them have, with so many for the
 * blocks. */
static int64_t buffer_at(const struct layout *l, int group, int turns)
{
    int64_t ends = l->group[0].size + l->group[l->groups - 1].size;

    return group == 0            ? 0
           : !is_block(l, group) ? l->group[0].size
                                 : ends + group % turns * largest_group(l, 1, l->groups - 1);
}

static int64_t buffers_size(const struct layout *l, int turns)
{
    return l->group[0].size + l->group[l->groups - 1].size +
           turns * largest_group(l, 1, l->groups - 1);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Elements of each buffer; 0: there is none. */
struct sizes {
    int64_t param, gathered;
    int64_t master; /* beside narrower parameters */
    int64_t grad, sums, scratch;
    int64_t narrow; /* in bf16 */
};

static struct sizes sizes_of(const struct model *m)
{
    const struct layout *l = &m->layout;
    int64_t own = partition_size(l, m->own), whole = l->size;
    struct sizes s = {.param = m->o.zero == 3 ? own : whole,
                      .gathered = m->o.zero == 3 ? buffers_size(l, PARAM_TURNS) : 0};

    if (!m->o.training) {
        return s;
    }
    s.master = m->dt == m->accum ? 0 : m->o.zero >= 1 ? own : whole;
    s.grad = m->o.zero >= 2 ? buffers_size(l, GRAD_TURNS) : whole;
    if (sums_each_pass(m)) {
        s.sums = own;
        s.scratch = m->o.passes > 1 ? largest_group(l, 0, l->groups) / ranks_of(m) : 0;
    }
    s.narrow = m->o.narrow_sums && ranks_of(m) > 1 ? largest_group(l, 0, l->groups) : 0;
    return s;
}

void zero_plan(const struct model *m, struct model_memory *out)
{
    struct sizes s = sizes_of(m);
    int64_t moments = m->o.training ? 2 * partition_size(&m->layout, m->state_held) : 0;

    out->weights_bytes = model_bytes(m, s.param + s.gathered);
    out->gradients_bytes = model_accum_bytes(m, s.grad + s.sums + s.scratch) +
                           (size_t)s.narrow * dtype_bytes(DT_BF16) + powersgd_bytes(m) +
                           (ranks_of(m) > 1 ? m->k->stream_bytes : 0);
    out->optimizer_bytes = model_accum_bytes(m, s.master + moments);
}

static void close_traffic(struct model *m)
{
    struct zero_traffic *t = m->traffic;

    for (int g = 0; t != NULL && g < m->layout.groups; g++) {
        m->k->event_close(&t->ready[g]);
        m->k->event_close(&t->summed[g]);
    }
    if (t != NULL) {
        m->k->event_close(&t->computed);
        m->k->event_close(&t->settled);
        m->k->stream_close(&t->ks);
        free(t->ready);
        free(t->summed);
        free(t);
    }
    m->traffic = NULL;
}

static void open_traffic(struct model *m)
{
    size_t groups = (size_t)m->layout.groups;
    struct zero_traffic *t = NEW(struct zero_traffic);

    m->traffic = t;
    t->ready = mem_array(groups, sizeof(struct kevent *));
    t->summed = mem_array(groups, sizeof(struct kevent *));
    model_do(m, m->k->stream_open(&t->ks));
    model_do(m, m->k->event_open(&t->computed));
    model_do(m, m->k->event_open(&t->settled));
    for (size_t g = 0; g < groups; g++) {
        model_do(m, m->k->event_open(&t->ready[g]));
        model_do(m, m->k->event_open(&t->summed[g]));
    }
}

/* Nothing where there is no such buffer. */
static int take_zero_memory(struct model *m, char **out, size_t size_bytes, struct err *e)
{
    return size_bytes == 0 ? 0 : model_take(m, out, size_bytes, e);
}

int zero_reserve(struct model *m, struct err *e)
{
    const struct layout *l = &m->layout;
    struct sizes s = sizes_of(m);
    int rc = take_zero_memory(m, &m->param, model_bytes(m, s.param), e);

    m->master = s.master > 0 ? NULL : m->param;
    rc = rc != 0 ? rc : take_zero_memory(m, &m->gathered, model_bytes(m, s.gathered), e);
    rc = rc != 0 ? rc : take_zero_memory(m, &m->master, model_accum_bytes(m, s.master), e);
    rc = rc != 0 ? rc : take_zero_memory(m, &m->grad, model_accum_bytes(m, s.grad), e);
    rc = rc != 0 ? rc : take_zero_memory(m, &m->sums, model_accum_bytes(m, s.sums), e);
    rc = rc != 0 ? rc : take_zero_memory(m, &m->scratch, model_accum_bytes(m, s.scratch), e);
    rc = rc != 0 ? rc : take_zero_memory(m, &m->narrow, (size_t)s.narrow * dtype_bytes(DT_BF16), e);
    rc = rc != 0 ? rc : powersgd_reserve(m, e);
    if (rc == 0 && m->o.comm != NULL && ranks_of(m) > 1) {
        open_traffic(m);
        rc = m->rc != 0
                 ? err_set(e, m->rc, "%s: cannot open a stream: %s", m->k->name, m->k->fault())
                 : 0;
    }
    for (int g = 0; rc == 0 && g < l->groups; g++) {
        int64_t offset = l->group[g].offset;

        m->group_param[g] = s.gathered > 0 ? NULL : m->param + model_bytes(m, offset);
        m->group_grad[g] =
            s.grad == 0
                ? NULL
                : m->grad +
                      model_accum_bytes(m, m->o.zero >= 2 ? buffer_at(l, g, GRAD_TURNS) : offset);
    }
    return rc;
}

void zero_release(struct model *m)
{
    close_traffic(m);
    powersgd_free(m);
    m->k->mem_free(m->narrow);
    m->k->mem_free(m->scratch);
    m->k->mem_free(m->sums);
    m->k->mem_free(m->grad);
    if (m->master != m->param) {
        m->k->mem_free(m->master);
    }
    m->k->mem_free(m->gathered);
    m->k->mem_free(m->param);
}

/* --- two streams ------------------------------------------------------------------------------ */

/* What goes on the wire next comes after what was computed. */
static struct kstream *after_computing(struct model *m)
{
    struct zero_traffic *t = m->traffic;

    model_do(m, m->k->event_record(t->computed, m->ks));
    model_do(m, m->k->event_wait(t->computed, t->ks));
    return t->ks;
}

void zero_settle(struct model *m)
{
    struct zero_traffic *t = m->traffic;

    if (t != NULL) {
        model_do(m, m->k->event_record(t->settled, t->ks));
        model_do(m, m->k->event_wait(t->settled, m->ks));
    }
}

int zero_allreduce(struct model *m, struct comm *c, enum dtype dt, void *buf, int64_t n)
{
    zero_settle(m);
    if (m->rc == 0) {
        model_do(m, comm_allreduce(c, m->ks, dt, buf, n));
    }
    return m->rc;
}

/* --- parameters ------------------------------------------------------------------------------- */

/* The block that was in the buffer before has been computed, or will be before this comes. */
static void gather_zero_group(struct model *m, int group)
{
    const struct layout *l = &m->layout;
    struct piece p = partition_group(l, m->own, group);
    char *whole = m->gathered + model_bytes(m, buffer_at(l, group, PARAM_TURNS));
    struct kstream *ks;

    if (m->group_param[group] != NULL || m->rc != 0) {
        return;
    }
    for (int g = 1; is_block(l, group) && g < l->groups - 1; g++) {
        m->group_param[g] = m->group_param[g] == whole ? NULL : m->group_param[g];
    }
    ks = after_computing(m);
    model_do(m, comm_allgather(m->o.comm, ks, m->dt, m->param + model_bytes(m, p.at), whole, p.n));
    model_do(m, m->k->event_record(m->traffic->ready[group], ks));
    m->group_param[group] = whole;
}

void zero_need(struct model *m, int group, int next)
{
    if (m->traffic == NULL) {
        return;
    }
    if (m->o.zero == 3) {
        gather_zero_group(m, group);
    }
    model_do(m, m->k->event_wait(m->traffic->ready[group], m->ks));
    if (m->o.zero == 3 && next >= 0 &&
        buffer_at(&m->layout, next, PARAM_TURNS) != buffer_at(&m->layout, group, PARAM_TURNS)) {
        gather_zero_group(m, next);
    }
}

void zero_publish(struct model *m, int group)
{
    struct piece p = partition_group(&m->layout, m->own, group);
    struct kstream *ks;

    if (m->traffic != NULL && m->o.zero == 3) {
        m->group_param[group] = NULL;
    } else if (m->traffic != NULL && m->o.zero >= 1 && m->rc == 0) {
        ks = after_computing(m);
        model_do(m, comm_allgather(m->o.comm, ks, m->dt, m->param + model_bytes(m, p.offset),
                                   m->group_param[group], p.n));
        model_do(m, m->k->event_record(m->traffic->ready[group], ks));
    }
}

/* --- gradients -------------------------------------------------------------------------------- */

/* Of a group's elements, the first whose gradient is added up from zero. Those before it a product
 * writes whole: all matrices but the embeddings, and of these the head. */
static int64_t first_added(const struct model *m, int group)
{
    const struct tensor *wte = layout_find(&m->layout, group, T_WTE);

    return wte == NULL      ? m->layout.group[group].decayed
           : m->config.tied ? wte->rows * wte->cols
                            : 0;
}

void zero_open_gradients(struct model *m, int group)
{
    int64_t first = first_added(m, group), size = m->layout.group[group].size;
    struct zero_traffic *t = m->traffic;
    int before = group;

    if (t != NULL && m->o.zero >= 2 && is_block(&m->layout, group)) {
        before = t->holder[group % GRAD_TURNS];
        t->holder[group % GRAD_TURNS] = group;
    }
    if (t != NULL) { /* what lay in the buffer is on the wire no more */
        model_do(m, m->k->event_wait(t->summed[before], m->ks));
    }
    if (m->fresh && first < size) {
        model_do(m, m->k->mem_zero(m->ks, m->group_grad[group] + model_accum_bytes(m, first),
                                   model_accum_bytes(m, size - first)));
    }
}

/* Gradients on their way. */
static enum dtype wire_type(const struct model *m)
{
    return m->narrow != NULL ? DT_BF16 : m->accum;
}

/* Of n elements, by this rank; an all-reduce has twice the traffic of a scatter. */
static void count_zero_traffic(struct model *m, const struct comm *c, int times, enum dtype dt,
                               int64_t n)
{
    m->sent_bytes += times * (double)n * (double)dtype_bytes(dt) * (c->size - 1) / c->size;
}

/* Of the buffer that gradients are rounded into. */
static char *narrow_at(const struct model *m, int64_t n)
{
    return m->narrow + (size_t)n * dtype_bytes(DT_BF16);
}

static void round_to_wire(struct model *m, int64_t at, const char *from, int64_t n)
{
    model_do(m, m->k->convert(m->traffic->ks, DT_BF16, narrow_at(m, at), m->accum, from, n));
}

static void widen_from_wire(struct model *m, char *to, int64_t at, int64_t n)
{
    model_do(m, m->k->convert(m->traffic->ks, m->accum, to, DT_BF16, narrow_at(m, at), n));
}

static void sum_run(struct model *m, struct comm *c, char *at, int64_t n)
{
    enum dtype dt = wire_type(m);

    if (dt != m->accum) {
        round_to_wire(m, 0, at, n);
    }
    model_do(m, comm_allreduce(c, m->traffic->ks, dt, dt != m->accum ? m->narrow : at, n));
    if (dt != m->accum) {
        widen_from_wire(m, at, 0, n);
    }
    count_zero_traffic(m, c, 2, dt, n);
}

void zero_sum_run(struct model *m, char *at, int64_t n)
{
    if (n > 0) {
        sum_run(m, m->o.comm, at, n);
    }
}

static void scatter(struct model *m, const char *whole, char *mine, int64_t n)
{
    enum dtype dt = wire_type(m);
    int64_t all = n * ranks_of(m), own = n * m->own.rank;

    if (dt != m->accum) {
        round_to_wire(m, 0, whole, all);
        whole = m->narrow;
    }
    model_do(m, comm_reduce_scatter(m->o.comm, m->traffic->ks, dt, whole,
                                    dt != m->accum ? narrow_at(m, own) : mine, n));
    if (dt != m->accum) {
        widen_from_wire(m, mine, own, n);
    }
    count_zero_traffic(m, m->o.comm, 1, dt, all);
}

/* `rounded`: the sums are numbers of the type that they were sent in, and may be sent so again. */
static void gather_sums(struct model *m, const char *mine, char *whole, int64_t n, bool rounded)
{
    enum dtype dt = rounded ? wire_type(m) : m->accum;
    int64_t all = n * ranks_of(m), own = n * m->own.rank;

    if (dt != m->accum) {
        round_to_wire(m, own, mine, n);
        mine = narrow_at(m, own);
    }
    model_do(m, comm_allgather(m->o.comm, m->traffic->ks, dt, mine,
                               dt != m->accum ? m->narrow : whole, n));
    if (dt != m->accum) {
        widen_from_wire(m, whole, 0, all);
    }
    count_zero_traffic(m, m->o.comm, 1, dt, all);
}

/* A step's piece, over the groups. */
static void sum_replicas(struct model *m, char *mine, int64_t n)
{
    struct comm *c = m->o.replicas;

    if (c != NULL) {
        sum_run(m, c, mine, n);
    }
}

/* Once a step: into its place in the whole. */
static void sum_once(struct model *m, int group)
{
    int64_t n = m->layout.group[group].size / ranks_of(m);
    char *whole = m->group_grad[group], *mine = whole + model_accum_bytes(m, n * m->own.rank);

    if (powersgd_takes(m, group)) {
        powersgd_sum(m, m->traffic->ks, group);
    } else if (m->o.zero == 0 && !m->o.ordered) {
        zero_sum_run(m, whole, m->layout.group[group].size);
    } else {
        scatter(m, whole, mine, n);
        sum_replicas(m, mine, n);
        if (m->o.zero == 0) {
            gather_sums(m, mine, whole, n, true);
        }
    }
}

/* The rank's piece is added to those of the passes before. */
static void sum_this_pass(struct model *m, int group, bool last)
{
    struct piece p = partition_group(&m->layout, m->own, group);
    char *sum = m->sums + model_accum_bytes(m, p.at);

    scatter(m, m->group_grad[group], m->pass == 0 ? sum : m->scratch, p.n);
    if (m->pass > 0) {
        model_do(m, m->k->add(m->traffic->ks, m->accum, sum, sum, m->scratch, p.n));
    }
    if (last) {
        sum_replicas(m, sum, p.n);
    }
    if (last && m->o.zero == 0) {
        gather_sums(m, sum, m->group_grad[group], p.n, m->o.passes == 1);
    }
}

void zero_sum_gradients(struct model *m, int group)
{
    bool last = m->pass == m->o.passes - 1;

    if (m->traffic == NULL || m->rc != 0 || (!last && !sums_each_pass(m))) {
        return;
    }
    (void)after_computing(m);
    if (sums_each_pass(m)) {
        sum_this_pass(m, group, last);
    } else {
        sum_once(m, group);
    }
    model_do(m, m->k->event_record(m->traffic->summed[group], m->traffic->ks));
}

double zero_gradient_bytes(const struct model *m, bool compressed)
{
    double n = ranks_of(m), sent = 0, accum = (double)dtype_bytes(m->accum);
    double wire = m->o.narrow_sums ? (double)dtype_bytes(DT_BF16) : accum;
    double times = sums_each_pass(m) ? (double)m->o.passes : 1;
    /* Of an element: scattered, and in stage 0 gathered. */
    double each = times * wire + (m->o.zero > 0 ? 0 : times > 1 ? accum : wire);

    double of_groups = m->o.groups > 1 ? 2 * wire * (m->o.groups - 1) / m->o.groups : 0;

    for (int g = 0; g < m->layout.groups; g++) {
        sent += compressed && powersgd_has(m, g) ? 2 * accum * (double)powersgd_elements(m, g)
                                                 : each * (double)m->layout.group[g].size;
    }
    return sent * (n - 1) / n + of_groups * (double)m->layout.size / n;
}

struct kstream *zero_stream(const struct model *m)
{
    return m->traffic != NULL ? m->traffic->ks : NULL;
}

bool zero_starts_anew(const struct model *m)
{
    return m->traffic != NULL && sums_each_pass(m);
}

struct piece zero_gradients(const struct model *m, int group, char **at)
{
    struct piece p = partition_group(&m->layout, m->own, group);

    *at = m->o.zero >= 1 && sums_each_pass(m) ? m->sums + model_accum_bytes(m, p.at)
                                              : m->grad + model_accum_bytes(m, p.offset);
    return p;
}

struct piece zero_updates(const struct model *m, int group, char **at)
{
    if (m->o.zero >= 1) {
        return zero_gradients(m, group, at);
    }
    *at = m->group_grad[group];
    return partition_group(&m->layout, m->state_held, group);
}

void zero_sum(struct model *m, double *x)
{
    /* Groups may add in another order each, and copies that differ by a bit drift apart: so one sum
     * is made for all ranks. */
    if (m->o.replicas != NULL && m->o.replicas->rank != 0) {
        model_do(m, m->k->mem_zero(m->ks, x, sizeof *x));
    }
    if (m->o.replicas != NULL || m->o.tp > 1) {
        (void)zero_allreduce(m, m->o.all, DT_F64, x, 1);
    } else if (m->traffic != NULL) {
        (void)zero_allreduce(m, m->o.comm, DT_F64, x, 1);
    }
}

/* --- for checkpoints -------------------------------------------------------------------------- */

char *zero_collect(struct model *m, char *set, struct partition held, int group)
{
    struct piece p = partition_group(&m->layout, held, group);
    char *mine = set + model_accum_bytes(m, p.at), *whole = m->group_grad[group];

    zero_settle(m);
    if (held.ranks == 1) {
        return mine;
    }
    model_do(m, comm_allgather(m->o.comm, m->ks, m->accum, mine, whole, p.n));
    return whole;
}
