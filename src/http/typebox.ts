/**
 * The parts of TypeBox that this service uses. The build bundles TypeBox into this file, because its 683 modules take longer to load
 * than all others together.
 */
export type { Static, TOptional, TSchema, TUnsafe } from 'typebox'
export { default as Type } from 'typebox'
export { Compile } from 'typebox/compile'
export type { TLocalizedValidationError } from 'typebox/error'
export { Settings } from 'typebox/system'
