/* Opens libsluice by dlopen as a program does that has long been running, and looks up in two threads.
 *
 *     library_dlopen LIBRARY [ROOM...]
 *
 * Each ROOM is a library whose thread-local words have a fixed place (the model initial-exec). They are opened first,
 * as far as the loader has room for them; it has none for the last, so that nothing is left to a library that asks,
 * too. */
#include <dlfcn.h>
#include <pthread.h>
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>

typedef sluice_acl* read_fn(const void*, size_t, const char*, const sluice_acl_options*, sluice_errors**);
typedef uint64_t classify_fn(const sluice_acl*, const sluice_key*, size_t, sluice_match*);
typedef void free_fn(sluice_acl*);

static read_fn* read_acl;
static classify_fn* classify;
static free_fn* free_acl;
static sluice_acl* acl;

static void* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return found;
}

static void* look_up(void* unused) {
  sluice_key key = {0};
  sluice_match match;
  key.family = 4;
  key.protocol = 17;
  key.bits = SLUICE_KEY_PORTS;
  key.dst_port = 53;
  if (classify(acl, &key, 1, &match) != 1 || match.rule != 1 || match.action != SLUICE_DENY) exit(2);
  return unused;
}

int main(int argc, char** argv) {
  static const char rules[] = "deny udp from any to any port 53\n";
  int i, rooms = 0, refused = 0;
  void* library;
  pthread_t thread;
  if (argc < 2) return 64;
  for (i = 2; i < argc; ++i) {
    refused = dlopen(argv[i], RTLD_NOW) == NULL;
    rooms += !refused;
  }
  if (argc > 2 && !refused) {
    fprintf(stderr, "there is still room after %d libraries\n", rooms);
    return 3;
  }
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void**)&read_acl = find(library, "sluice_acl_read");
  *(void**)&classify = find(library, "sluice_acl_classify");
  *(void**)&free_acl = find(library, "sluice_acl_free");
  acl = read_acl(rules, sizeof rules - 1, "rules", NULL, NULL);
  if (acl == NULL) return 4;
  look_up(NULL);
  if (pthread_create(&thread, NULL, look_up, NULL) != 0 || pthread_join(thread, NULL) != 0) return 5;
  free_acl(acl);
  printf("opened after %d libraries\n", rooms);
  return 0;
}
