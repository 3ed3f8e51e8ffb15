"""Tests of agent.llm."""
