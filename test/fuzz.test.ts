/** Random requests to every route. test/faults/fuzz.test.ts sends twenty times as many. */
import { describeRandomRequests } from './support/fuzz.ts'

await describeRandomRequests(100)
