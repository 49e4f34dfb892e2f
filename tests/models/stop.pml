/* SPDX-License-Identifier: Apache-2.0 */
/* The word after every step (doc/step-word.md), in a star: when ranks stop, and that they do.
 * After step k a rank says its word of k and waits for that of all ranks of k - 1. A flag in it
 * stops the rank after step k. A notice may come to any rank at any moment, and any two ranks may
 * die at any moment.
 *
 * Holds: ranks that stop for a notice stop after the same step; a word that a rank waits for is that
 * of the step before; every rank that lives comes to an end. */
#define RANKS 3
#define STEPS 3
#define CRASHES 2

#define SUM 1
#define LEFT 2

/* A connection keeps what was sent before it ended. */
chan up[RANKS] = [STEPS] of { byte, bool };          /* step, flag: to rank 0's thread */
chan down[RANKS] = [STEPS + 1] of { byte, byte, bool }; /* kind, step, flag */
bool dead[RANKS];
byte stopped[RANKS]; /* the step after which it stopped for a notice; 0: it has not */
byte ended = 0, crashes = 0;

inline die(r)
{
	atomic { crashes < CRASHES -> crashes++; dead[r] = true; goto gone }
}

proctype rank(byte r)
{
	byte step = 0, kind, heard;
	bool flag = false, all = false;

	do
	:: step < STEPS && !all ->
		step++;
		if
		:: flag = true /* a notice, which stays */
		:: skip
		:: die(r)
		fi;
		up[r] ! step, flag;
		if
		:: step > 1 -> goto hear
		:: else
		fi;
next:		skip
	:: else -> break
	od;
	if
	:: all -> stopped[r] = step
	:: else
	fi;
	/* At the end it waits for the last words: those that lie below need them. */
	do
	:: step > heard && !all ->
		if
		:: down[r] ? kind, heard, flag -> if :: kind == LEFT -> goto lost :: else fi
		:: dead[0] && empty(down[r]) -> goto lost
		:: die(r)
		fi
	:: else -> break
	od;
	goto over;
hear:
	if
	:: down[r] ? kind, heard, all ->
		if
		:: kind == LEFT -> goto lost
		:: else -> assert(heard == step - 1)
#ifdef BROKEN
			all = all || flag; /* its own notice, before all know */
#endif
			goto next
		fi
	:: dead[0] && empty(down[r]) -> goto lost
	:: die(r)
	fi;
lost:	skip; /* ends with 69 */
over:	skip;
gone:	atomic { dead[r] = true; ended++ }
}

/* Rank 0's thread, which lives as long as rank 0 and until all words are said. */
proctype tree()
{
	byte r, step = 1, said;
	bool flag, all;

	do
	:: step <= STEPS ->
		r = 0;
		all = false;
		do
		:: r < RANKS ->
			if
			:: up[r] ? said, flag -> assert(said == step); all = all || flag; r++
			:: dead[r] && empty(up[r]) -> goto left
			fi
		:: else -> break
		od;
		r = 0;
		do
		:: r < RANKS ->
			if
			:: down[r] ! SUM, step, all
			:: dead[0] -> goto over /* amid its sums */
			fi;
			r++
		:: else -> break
		od;
		step++
	:: else -> break
	od;
	goto over;
left:	r = 0;
	do
	:: r < RANKS -> down[r] ! LEFT, 0, false; r++
	:: else -> break
	od;
over:	skip
}

/* Ranks that stopped for a notice. */
active proctype judge()
{
	byte a, b;

	atomic {
		a = 0;
		do
		:: a < RANKS -> run rank(a); a++
		:: else -> break
		od;
		run tree()
	}
	ended == RANKS;
	a = 0;
	do
	:: a < RANKS ->
		b = 0;
		do
		:: b < RANKS ->
			assert(!stopped[a] || !stopped[b] || stopped[a] == stopped[b]);
			b++
		:: else -> break
		od;
		a++
	:: else -> break
	od
}
