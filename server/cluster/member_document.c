#include "server/cluster/member_document.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/endian.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/cluster/format.h"

enum { VALUES = 512 };

void member_document_write(const struct member_document *d, struct buf *out)
{
    char origin[17];

    jwrite_open(out, NULL, '{');
    jwrite_str(out, "address", d->member.address);
    jwrite_str(out, "version", d->member.version);
    jwrite_u64(out, "format", d->member.format);
    jwrite_str(out, "state", member_state_name(d->member.state));
    jwrite_u64(out, "weight", d->member.weight);
    jwrite_u64(out, "applied", d->member.applied);
    jwrite_bool(out, "stopped", d->member.stopped);
    jwrite_str(out, "boot", d->boot);
    jwrite_u64(out, "beat", d->beat);
    jwrite_open(out, "pauses", '[');
    for (size_t i = 0; i < d->pauses; i++) {
        snprintf(origin, sizeof origin, "%016" PRIx64, d->pause[i].origin);
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "origin", origin);
        jwrite_u64(out, "until", d->pause[i].until_unix_s);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
}

/* A text that is too long counts as none. */
static void copy_text(struct slice text, char *out, size_t room)
{
    snprintf(out, room, "%.*s", (int)(text.n < room ? text.n : 0), text.p);
}

/* A node that does not announce its state is of a version that only announced itself when it was
 * ready. */
static enum member_state state_of(struct slice name)
{
    for (enum member_state s = MEMBER_JOINING; s <= MEMBER_LEFT; s++) {
        if (slice_eqs(name, member_state_name(s))) {
            return s;
        }
    }
    return MEMBER_READY;
}

static void read_pauses(const json_t *list, struct member_document *out)
{
    const json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        struct announced_pause *p = &out->pause[out->pauses];
        struct slice origin = jread_text(o, "origin");
        uint8_t id[8];
        if (origin.p != NULL && slice_hex(origin, id, sizeof id) &&
            jread_u64(o, "until", &p->until_unix_s)) {
            p->origin = be_get((const char *)id, sizeof id);
            if (++out->pauses == MEMBER_PAUSES_MAX) {
                return;
            }
        }
    }
}

bool member_document_read(struct slice bytes, struct member_document *out)
{
    json_t *o = jread_parse(bytes, 0, VALUES);
    struct member *m = &out->member;
    uint64_t weight = 1;
    bool ok = json_is_object(o);

    *out = (struct member_document){.member.format = FORMAT_FIRST};
    copy_text(jread_text(o, "address"), m->address, sizeof m->address);
    copy_text(jread_text(o, "version"), m->version, sizeof m->version);
    jread_u64(o, "format", &m->format);
    m->state = state_of(jread_text(o, "state"));
    jread_u64(o, "weight", &weight);
    m->weight = (uint32_t)min_u64(max_u64(weight, 1), MEMBER_WEIGHT_MAX);
    jread_u64(o, "applied", &m->applied);
    m->stopped = json_is_true(json_object_get(o, "stopped"));
    copy_text(jread_text(o, "boot"), out->boot, sizeof out->boot);
    jread_u64(o, "beat", &out->beat);
    read_pauses(json_object_get(o, "pauses"), out);
    json_decref(o);
    return ok;
}
