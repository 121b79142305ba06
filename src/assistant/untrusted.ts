/**
 * Text that outsiders wrote, as a model may read it: display names, tags, names that tenants chose, messages of LINE and of receivers.
 * Such text only appears as the value of a field `untrusted`. Personal text is masked, unless the operator has decided otherwise.
 */
import { oneLine } from '../one-line.ts'

export type Untrusted = { untrusted: string }

/** Characters of one text. A display name has at most 20 to 50; the responses of receivers that are stored have up to 500. */
const TEXT_MAX = 300
/** Format characters, private use, unassigned, variation selectors, fillers, and the blank of Braille. */
const UNSEEN = /\p{Cf}|\p{Co}|\p{Cn}|\p{Variation_Selector}|\p{Default_Ignorable_Code_Point}|\u2800/gu
const MASK = '•••'

/** Removes what a person does not see and a model does. */
export const visible = (text: string): string => oneLine(text.replace(UNSEEN, ''), TEXT_MAX)

export function untrusted(text: string): Untrusted
export function untrusted(text: string | null): Untrusted | null
export function untrusted(text: string | null): Untrusted | null {
  return text === null ? null : { untrusted: visible(text) }
}

/** Text about a person, or text that may contain some: its first character. */
export function personal(text: string | null, showPersonalData: boolean): Untrusted | null {
  if (text === null || showPersonalData) return untrusted(text)
  const [first = ''] = visible(text)
  return { untrusted: `${first}${MASK}` }
}
