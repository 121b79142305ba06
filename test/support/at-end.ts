/** What a test opens is closed with it. */
import { afterAll, onTestFinished, TestRunner } from 'vitest'

/** Runs when the test has ended, or the last test of the file if no test runs yet. What was opened last is closed first. */
export function atEnd(close: () => unknown): void {
  const hook = async () => void (await close())
  if (TestRunner.getCurrentTest() === undefined) afterAll(hook)
  else onTestFinished(hook)
}
