#include "agent/train/products.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/zero.h"
#include "common/base/log.h"

/* Of two streams. */
enum { TEXT_BYTES = 2 * MATMUL_CHOICES_BYTES };

/* With compression the stream of collectives multiplies, too. */
static struct kstream *other_stream(const struct model *m)
{
    return m->powersgd != NULL ? zero_stream(m) : NULL;
}

int products_read(struct model *m, struct buf *out, struct err *e)
{
    char *text = mem_new(MATMUL_CHOICES_BYTES);
    int rc = m->k->matmul_choices(m->ks, text, MATMUL_CHOICES_BYTES);
    struct slice lines;

    buf_clear(out);
    if (rc == 0) {
        buf_str(out, text);
    }
    if (rc == 0 && other_stream(m) != NULL) {
        rc = m->k->matmul_choices(other_stream(m), text, MATMUL_CHOICES_BYTES);
        lines = slice_str(text);
        if (rc == 0 && out->n > 0) {
            (void)slice_cut(&lines, '\n'); /* the machine is the same */
        }
        buf_add(out, lines.p, rc == 0 ? lines.n : 0);
    }
    free(text);
    return rc != 0 ? err_set(e, rc, "%s: %s", m->k->device, m->k->fault()) : 0;
}

static int choose_product_kernels(struct model *m, struct buf *text, struct err *e)
{
    int rc = m->k->matmul_choose(m->ks, buf_cstr(text));

    if (rc == 0 && other_stream(m) != NULL) {
        rc = m->k->matmul_choose(other_stream(m), buf_cstr(text));
    }

    return rc != 0 ? err_set(e, rc, "%s: %s", m->k->device, m->k->fault()) : 0;
}

int products_load(struct model *m, const char *dir, struct buf *before, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    snprintf(path, sizeof path, "%s/" PRODUCTS_NAME, dir);
    rc = buf_read_file(before, path, e);
    if (rc == E_NOTFOUND) {
        buf_clear(before);
        return 0;
    }
    return rc != 0 ? rc : choose_product_kernels(m, before, e);
}

/* Each byte travels as a float, and zeros from all ranks but the first: the sum is the first one's
 * text. */
static int exchange_products(struct model *m, struct comm *comm, void *device, char *text,
                             struct err *e)
{
    float *x = mem_array(TEXT_BYTES, sizeof *x);
    size_t bytes = TEXT_BYTES * sizeof *x;
    int rc;

    for (size_t i = 0; comm->rank == 0 && text[i] != '\0'; i++) {
        x[i] = (float)(uint8_t)text[i];
    }
    rc = model_put(m, device, x, bytes, e);
    if (rc == 0) {
        rc = zero_allreduce(m, comm, DT_F32, device, TEXT_BYTES);
        if (rc != 0) {
            err_set(e, rc, "%s: the connection between the ranks broke", comm->name);
        }
    }
    rc = rc != 0 ? rc : model_get(m, x, device, bytes, e);
    for (size_t i = 0; rc == 0 && i < TEXT_BYTES; i++) {
        text[i] = (char)(uint8_t)x[i];
    }
    free(x);
    return rc;
}

static bool has_line(const struct buf *text, struct slice line)
{
    struct slice rest = buf_slice(text);
    bool found = false;

    while (!found && rest.n > 0) {
        found = slice_eq(slice_cut(&rest, '\n'), line);
    }
    return found;
}

/* The first rank may have measured more, to say what its GPU can do. */
static bool all_are_in(const struct buf *text, const struct buf *other)
{
    struct slice rest = buf_slice(text);
    bool all = true;

    while (all && rest.n > 0) {
        all = has_line(other, slice_cut(&rest, '\n'));
    }
    return all;
}

int products_share(struct model *m, struct comm *comm, struct err *e)
{
    struct buf text = BUF_INIT(TEXT_BYTES), theirs = BUF_INIT(TEXT_BYTES);
    char *first = mem_new(TEXT_BYTES);
    void *device = NULL;
    int rc = products_read(m, &text, e);

    if (rc == 0 && text.n > 0) { /* on CPUs no rank has any */
        memcpy(first, text.p, text.n);
        rc = m->k->mem_alloc(&device, TEXT_BYTES * sizeof(float));
        rc = rc != 0 ? err_set(e, rc, "%s: not enough memory for the exchange between the ranks",
                               m->k->device)
                     : exchange_products(m, comm, device, first, e);
        if (rc == 0) { /* else a kernel may hang, and freeing waits for it */
            m->k->mem_free(device);
        }
    }
    buf_str(&theirs, first);
    if (rc == 0 && !all_are_in(&text, &theirs)) {
        log_info("deterministic.products", "rank=%d uses the algorithms of rank 0", comm->rank);
        rc = choose_product_kernels(m, &theirs, e);
    }
    buf_free(&theirs);
    buf_free(&text);
    free(first);
    return rc;
}

/* Whether `text` has another algorithm for the product of `line`: "ALGORITHM PRODUCT". */
static bool has_other(const struct buf *text, struct slice line)
{
    struct slice rest = buf_slice(text), product = line, algorithm = slice_cut(&product, ' ');
    bool other = false;

    while (!other && rest.n > 0) {
        struct slice p = slice_cut(&rest, '\n'), a = slice_cut(&p, ' ');

        other = slice_eq(p, product) && !slice_eq(a, algorithm);
    }
    return other && !has_line(text, line);
}

int products_changed(struct model *m, const struct buf *before, size_t *count, struct err *e)
{
    struct buf now = BUF_INIT(TEXT_BYTES);
    int rc = products_read(m, &now, e);
    struct slice rest = buf_slice(&now);

    *count = 0;
    (void)slice_cut(&rest, '\n'); /* the machine's name: that of another may do as well */
    while (rest.n > 0) {
        *count += has_other(before, slice_cut(&rest, '\n'));
    }
    buf_free(&now);
    return rc;
}
