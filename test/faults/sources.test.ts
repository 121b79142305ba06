import { expect, it } from 'vitest'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { tryJourneys } from '../support/journeys.ts'

/** 100,000 take four minutes (tried on 2026-11-29). */
const JOURNEYS = 5_000
/** A larger one would hold hundreds of thousands of events in memory. */
const PART = 5_000

const { database } = await createTestDatabase()

it('the source of each of 5,000 people is a function of their visits and follows', {
  timeout: 600_000,
}, async () => {
  for (let tried = 0; tried < JOURNEYS; tried += PART)
    expect(await tryJourneys(database, await addTenant(database), PART)).toEqual([])
})
