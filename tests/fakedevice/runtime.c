/* The lock, settings, reports (runtime.h). The state below is a process's own, like that of the runtime it stands for.
 */
#include "runtime.h"
#include "fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REPORTS_SHOWN = 20 };

struct text {
	struct text *next;
	char *text;
};

static struct {
	pthread_once_t once;
	pthread_mutex_t mutex;
	pthread_cond_t moved, hired;
	struct pp_fake_settings settings;
	uint64_t progress, random;
	uint64_t races, reports;
	char report[2048];
	bool exit_set;
	struct text *texts;
} fake = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void start(void)
{
	const char *devices = getenv("PP_FAKE_DEVICES");
	fake.settings = (struct pp_fake_settings){
	    .jitter = number("PP_FAKE_JITTER", 0),
	    .buffered = number("PP_FAKE_BUFFERED", 0),
	    .memory = number("PP_FAKE_MEMORY_MIB", 4096) << 20,
	    .shared = (int)number("PP_FAKE_SHARED_KIB", 228) << 10,
	    .threads = (uint32_t)number("PP_FAKE_THREADS", 2),
	    .quiet_ms = (uint32_t)number("PP_FAKE_QUIET_MS", 500),
	    .stall_ms = (uint32_t)number("PP_FAKE_STALL_MS", 10000),
	    .resident = (uint32_t)number("PP_FAKE_RESIDENT", 0),
	    .ordered = number("PP_FAKE_ORDERED", 0) != 0,
	    .devices = devices ? atoi(devices) : 1,
	    .first = (uint32_t)number("PP_FAKE_FIRST_DEVICE", 0),
	    .stop = number("PP_FAKE_STOP", 0) != 0,
	    .driver = (int)number("PP_FAKE_DRIVER", 13000),
	    .capability = (int)number("PP_FAKE_CAPABILITY", 90),
	    .watchdog = number("PP_FAKE_WATCHDOG", 1) != 0,
	    .plant = getenv("PP_FAKE_PLANT"),
	    .async_error = getenv("PP_FAKE_ASYNC_ERROR"),
	};
	fake.random = fake.settings.jitter;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&fake.moved, &attributes);
	pthread_cond_init(&fake.hired, &attributes);
	pthread_condattr_destroy(&attributes);
}

const struct pp_fake_settings *pp_fake_settings(void)
{
	pthread_once(&fake.once, start);
	return &fake.settings;
}

void pp_fake_lock(void)
{
	pthread_once(&fake.once, start);
	pthread_mutex_lock(&fake.mutex);
}

void pp_fake_unlock(void)
{
	pthread_mutex_unlock(&fake.mutex);
}

void pp_fake_progressed(void)
{
	fake.progress++;
	pthread_cond_broadcast(&fake.moved);
}

uint64_t pp_fake_progress(void)
{
	return fake.progress;
}

static void wait_for(pthread_cond_t *condition, uint64_t until)
{
	if (until == 0) {
		pthread_cond_wait(condition, &fake.mutex);
		return;
	}
	struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	pthread_cond_timedwait(condition, &fake.mutex, &time);
}

void pp_fake_wait(uint64_t until)
{
	wait_for(&fake.moved, until);
}

void pp_fake_rest(uint64_t until)
{
	wait_for(&fake.hired, until);
}

void pp_fake_hire(void)
{
	pthread_cond_signal(&fake.hired);
}

uint64_t pp_fake_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
uint64_t pp_fake_random(void)
{
	uint64_t z = fake.random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void end_badly(void)
{
	if (fake.reports == 0)
		return;
	fprintf(stderr, "fake cuda: reports: %llu, races among them: %llu\n", (unsigned long long)fake.reports,
	        (unsigned long long)fake.races);
	fflush(NULL);
	_exit(PP_FAKE_EXIT);
}

static void report(const char *format, va_list arguments)
{
	vsnprintf(fake.report, sizeof fake.report, format, arguments);
	fake.reports++;
	if (fake.reports <= REPORTS_SHOWN)
		fprintf(stderr, "fake cuda: %s\n", fake.report);
	if (fake.settings.stop) {
		fflush(NULL);
		_exit(PP_FAKE_EXIT);
	}
	if (!fake.exit_set)
		atexit(end_badly);
	fake.exit_set = true;
}

void pp_fake_fault(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	report(format, arguments);
	va_end(arguments);
}

void pp_fake_race(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fake.races++;
	report(format, arguments);
	va_end(arguments);
}

void pp_fake_die(const char *format, ...)
{
	static char last_words[1 << 17];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(last_words, sizeof last_words, format, arguments);
	va_end(arguments);
	fprintf(stderr, "fake cuda: %s\n", last_words); /* at one go: other processes may be saying the same */
	fflush(NULL);
	_exit(PP_FAKE_EXIT);
}

/* Of the calling thread: ranks that are threads are not all in a step at the same time. */
static _Thread_local bool frozen;

void pp_fake_frozen(const char *what)
{
	if (frozen)
		pp_fake_fault("%s within a step: all of it belongs before the first", what);
}

bool pp_fake_is_frozen(void)
{
	return frozen;
}

void pp_fake_freeze(void)
{
	frozen = true;
}

void pp_fake_thaw(void)
{
	frozen = false;
}

uint64_t pp_fake_races(void)
{
	pp_fake_lock();
	uint64_t races = fake.races;
	pp_fake_unlock();
	return races;
}

uint64_t pp_fake_reports(void)
{
	pp_fake_lock();
	uint64_t reports = fake.reports;
	pp_fake_unlock();
	return reports;
}

const char *pp_fake_report(void)
{
	return fake.report;
}

void pp_fake_forgive(void)
{
	pp_fake_lock();
	fake.races = fake.reports = 0;
	fake.report[0] = '\0';
	pp_fake_unlock();
}

void *pp_fake_new(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);
	if (!memory)
		pp_fake_die("out of memory");
	return memory;
}

void *pp_fake_grow(void *old, size_t bytes)
{
	void *memory = realloc(old, bytes ? bytes : 1);
	if (!memory)
		pp_fake_die("out of memory");
	return memory;
}

const char *pp_fake_text(const char *format, ...)
{
	char made[160];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(made, sizeof made, format, arguments);
	va_end(arguments);
	for (const struct text *known = fake.texts; known; known = known->next)
		if (strcmp(known->text, made) == 0)
			return known->text;
	struct text *text = pp_fake_new(sizeof *text);
	text->text = pp_fake_new(strlen(made) + 1);
	memcpy(text->text, made, strlen(made) + 1);
	text->next = fake.texts;
	fake.texts = text;
	return text->text;
}
