/* schema.h - settings.def as tables: the sections, the keys, and how each text becomes a field.
 *
 * threads  constant data */
#ifndef SERVER_CONF_SCHEMA_H
#define SERVER_CONF_SCHEMA_H

#include "common/base/buf.h"
#include "common/codec/settings.h"

enum section {
#define SECTION(name, text, parent, titled, type, doc) SECTION_##name,
#define SETTING(section, key, kind, field, def, range, doc)
#include "server/conf/settings.def"
#undef SECTION
#undef SETTING
    SECTIONS
};

enum kind {                     /* the C type of the field */
            KIND_TEXT,          /* const char *, NULL when not set, as for every pointer below */
            KIND_PATH,          /* const char *: absolute, or relative to the file that has it */
            KIND_FILE,          /* const char *: the same, and readable now; or credential:NAME */
            KIND_LOG,           /* const char *: a path, "stderr" or "none" */
            KIND_URL,           /* const char *: http or https, without query */
            KIND_SECRET,        /* const char *: the contents of credential:NAME or file:PATH */
            KIND_CHOICE,        /* const char *: one of `range` */
            KIND_HOSTS,         /* const char *const * and <field>_count */
            KIND_URLS,          /* the same */
            KIND_TEXTS,         /* const char *const * and <field>_count */
            KIND_UPSTREAM,      /* const char *: as KIND_URL, or rsync, rsyncs and s3 */
            KIND_UPSTREAMS,     /* of them, as KIND_HOSTS */
            KIND_ORIGINS,       /* the same; printed without braces if there is one */
            KIND_NETWORKS,      /* the same */
            KIND_BOOL,          /* bool */
            KIND_COUNT,         /* uint32_t */
            KIND_SIZE,          /* uint64_t, bytes */
            KIND_SIZE32,        /* uint32_t, bytes */
            KIND_SIZE_OR_SHARE, /* storage's reserve: bytes or ratio */
            KIND_SHARE,         /* double, 0 to 1 */
            KIND_RATE,          /* uint64_t, bytes per second */
            KIND_RATE32,        /* uint32_t, bytes per second */
            KIND_FREQUENCY,     /* double, per second */
            KIND_SPAN,          /* uint32_t, ms */
            KIND_SECONDS,       /* int64_t, s; -1 when not set */
            KIND_SECONDS32,     /* uint32_t, s */
};

struct setting {
    enum section section;
    const char *key;
    enum kind kind;
    size_t offset;
    const char *def;   /* as written; NULL: none; "!": required */
    const char *range; /* "" when any value is valid */
    const char *doc;
};

struct section_info {
    const char *name;
    enum section parent;
    const char *titled; /* "", or what the section's title means */
    const char *doc;
};

struct access_conf {
    const char *anonymous; /* read | none */
};

const struct section_info *section_info(enum section s);
/* The settings of a section: consecutive lines of settings.def. */
const struct setting *section_settings(enum section s, size_t *count);
bool kind_is_list(enum kind k);
/* The same tables in the form that the file reader needs; sections have the numbers of enum
 * section. */
const struct settings_grammar *schema_grammar(struct arena *a);
/* docs/configuration.md. */
void schema_doc(struct buf *out);

#endif
