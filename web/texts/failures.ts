/** Why an event could not be applied. The service stores an English sentence, which is also the filter of the list. */

/** Sentences of the service by kind. The number or name in a sentence becomes the parameter of the translation. */
export const FAILURE_PATTERNS = {
  not_an_object: /^the event is not an object$/,
  too_deep: /^the event is nested deeper than (\d+) levels$/,
  user_id_type: /^the user id is not a string$/,
  user_id_empty: /^the user id is empty$/,
  user_id_long: /^the user id is longer than (\d+) characters$/,
  user_id_characters: /^the user id has characters that cannot be stored$/,
  time_range: /^the time is not a number of milliseconds between the years 1970 and 9999$/,
  time_form: /^the time has an unknown form$/,
  other_inbox: /^the event belongs to another inbox than the account's$/,
  refused_by_database: /^the database refused to apply it \((SQLSTATE \w+)\)$/,
} as const

export type EventFailureTexts = Record<keyof typeof FAILURE_PATTERNS, (fact: string) => string>

/** Returns the sentence unchanged in English, or if another version or program wrote it. */
export function describeFailure(texts: EventFailureTexts | null, failure: string): string {
  if (texts === null) return failure
  for (const [kind, pattern] of Object.entries(FAILURE_PATTERNS)) {
    const found = pattern.exec(failure)
    if (found !== null) return texts[kind as keyof EventFailureTexts](found[1] ?? '')
  }
  return failure
}
