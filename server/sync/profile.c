#include "server/sync/profile.h"

#define PROFILE(name) extern const struct profile profile_##name;
#include "server/sync/profiles.def"
#undef PROFILE

static const struct profile *const profiles[] = {
#define PROFILE(name) &profile_##name,
#include "server/sync/profiles.def"
#undef PROFILE
};

/* NULL: there is none. */
static const struct profile *profile_named(const char *name)
{
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(profiles); i++) {
        if (strcmp(profiles[i]->name, name) == 0) {
            return profiles[i];
        }
    }
    return NULL;
}

const struct profile *profile_of(const struct sync_conf *c)
{
    const struct profile *p = profile_named(c->list);

    return p != NULL ? p : profile_named(c->profile);
}
