"""What is worth remembering of a user: few facts, each with the words it rests on, all of them in the prompt."""
