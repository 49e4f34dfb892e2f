/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns a checkpoint directory (doc/checkpoint-format.md, 6): three attempts of a job claim it,
 * in any order, keep their heartbeats, and look before each commit. Earlier ones may live on, and
 * any two may die at any moment; the kernel then releases the lock.
 *
 * Holds: the directory never goes back to an earlier attempt; an attempt that looks and finds its
 * token is the newest that has claimed; each claim that the rules grant is granted in the end. */
#define ATTEMPTS 3
#define CRASHES 2

byte owner = 0, lock = 0, newest = 0, crashes = 0;
byte touched[4]; /* how often the file of an attempt got a heartbeat; that of 0 is none */

inline maybe_die()
{
	if
	:: atomic { crashes < CRASHES -> crashes++; if :: lock == me -> lock = 0 :: else fi; goto gone }
	:: skip
	fi
}

proctype attempt(byte me)
{
	byte found, beats = 0, file = 0;

	atomic { lock == 0 -> lock = me }
	maybe_die();
	found = owner;
	maybe_die();
	if
	:: found > me -> lock = 0; goto gone /* refused: a later attempt has it */
	:: else
	fi;
	atomic {
		assert(owner < me);
		owner = me; /* replaced whole */
		newest = me
	}
	maybe_die();
	lock = 0;
	do
	:: beats < 2 ->
		beats++;
		/* Opens the file and reads it; only one with its own token gets the heartbeat. */
		file = owner;
		maybe_die();
		if
		:: file == me ->
#ifdef BROKEN
			owner = me /* by name, and not through the open file */
#else
			touched[file]++ /* the open file, whatever has its name by now */
#endif
		:: else -> goto gone /* lost */
		fi;
		/* Before a commit. */
		atomic { if :: owner == me -> assert(newest == me) :: else -> goto gone fi }
	:: else -> break
	od;
gone:	skip
}

init { atomic { run attempt(1); run attempt(2); run attempt(3) } }

/* In every state. */
active proctype judge()
{
end:	do
	:: atomic { owner != newest -> assert(false) }
	od
}
